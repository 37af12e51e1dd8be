#include "cli/corpus/note.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/terminal.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/output_place.h"

namespace cairn::cli {

void PrintNote(const std::string& text) {
  std::fprintf(stderr, "%s%s %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "",
               Coloured(stderr, Colour::kDim, "note:").c_str(), text.c_str());
}

ReplacementNote::ReplacementNote(const std::vector<std::string>& paths, const std::string& others) {
  std::vector<std::string> replaced;
  for (const std::string& path : paths) {
    const auto place = corpus::FindOutputPlace(path);
    if (!place.ok() || place->stream) continue;
    std::error_code error;
    const bool stands = place->object ? corpus::StoresOf(place->path)->Stands(place->path)
                                      : std::filesystem::is_regular_file(place->path, error);
    if (stands) replaced.push_back(ForTerminal(path));
  }
  if (!replaced.empty()) replaced_ = absl::StrCat(absl::StrJoin(replaced, ", "), others);
}

void ReplacementNote::Tell(const std::string& verb, const std::string& when) {
  if (!told_.exchange(true) && !replaced_.empty()) PrintNote(absl::StrCat(verb, " ", replaced_, when));
}

}  // namespace cairn::cli
