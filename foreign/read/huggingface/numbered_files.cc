#include "foreign/read/huggingface/numbered_files.h"

#include <re2/re2.h>

#include "absl/strings/str_cat.h"

namespace cairn {

std::map<std::string, NumberedFiles> FindNumberedFiles(std::span<const std::string> names) {
  static const LazyRE2 kNumbered = {R"((.*-)([0-9]{1,9})(-of-([0-9]{1,9})\.safetensors))"};
  std::map<std::string, NumberedFiles> sets;
  for (const std::string& name : names) {
    std::string before, behind;
    int64_t number = 0, total = 0;
    if (!RE2::FullMatch(name, *kNumbered, &before, &number, &behind, &total)) continue;
    NumberedFiles& set = sets[absl::StrCat(before, "*", behind)];
    set.total = total;
    set.numbers.insert(number);
    set.names.push_back(name);
  }
  return sets;
}

}  // namespace cairn
