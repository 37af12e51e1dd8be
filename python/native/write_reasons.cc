// Prints python/cairn/_reasons.py, which has the next action of every reason, from the table that the services use.
#include <iostream>

#include "absl/strings/escaping.h"
#include "common/status/reason.h"

int main() {
  std::cout << "\"\"\"What the reader of an error should do, by its reason. Made of common/status/reason.cc by the "
               "build.\"\"\"\n"
               "\nNEXT_ACTIONS: dict[str, str] = {\n";
  for (const cairn::ReasonInfo& info : cairn::ReasonTable()) {
    std::cout << "    \"" << info.name << "\": \"" << absl::Utf8SafeCEscape(std::string(info.next_action)) << "\",\n";
  }
  std::cout << "}\n";
}
