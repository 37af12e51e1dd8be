#include "cli/base/text_input.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn::cli {

absl::StatusOr<std::string> ReadTextInput(const std::string& path, size_t max_bytes) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  const auto failed = [&](int error) {
    return MakeError(Reason::kInputUnreadable, absl::StrCat("cannot read '", path, "': ", std::strerror(error)),
                     {{"file", path}});
  };
  if (file == nullptr) return failed(errno);
  const std::unique_ptr<std::FILE, void (*)(std::FILE*)> closer(file, [](std::FILE* open) {
    if (open != stdin) std::fclose(open);
  });
  std::string text;
  size_t used = 0;
  while (true) {
    if (used == text.size()) {
      // Allocates a file's known size at once, so that the text is not copied while it grows.
      size_t room = std::max<size_t>(1 << 16, used);
      if (used == 0 && std::fseek(file, 0, SEEK_END) == 0) {
        const long size = std::ftell(file);
        std::rewind(file);
        if (size > 0) room = static_cast<size_t>(size) + 1;
      }
      // Reads up to one byte more than allowed, to detect a file that is too long.
      text.resize(std::min(used + room, max_bytes + 1));
    }
    const size_t got = std::fread(text.data() + used, 1, text.size() - used, file);
    used += got;
    if (used > max_bytes) {
      return MakeError(Reason::kBadRequest, absl::StrCat("'", path, "' is larger than ", max_bytes, " bytes"),
                       {{"file", path}, {"next", "Check that the path is the one that you mean."}});
    }
    if (got == 0) {
      if (std::ferror(file)) return failed(errno);
      break;
    }
  }
  text.resize(used);
  return text;
}

}  // namespace cairn::cli
