#include "cli/corpus/replaced_output.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_join.h"
#include "cli/base/terminal.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/output_place.h"

namespace cairn::cli {

void NoteReplaced(const std::vector<std::string>& paths) {
  std::vector<std::string> replaced;
  for (const std::string& path : paths) {
    const auto place = corpus::FindOutputPlace(path);
    if (!place.ok() || place->stream) continue;
    std::error_code error;
    const bool stands = place->object ? corpus::StoresOf(place->path)->Stands(place->path)
                                      : std::filesystem::is_regular_file(place->path, error);
    if (!stands) continue;
    replaced.push_back(ForTerminal(path));
  }
  if (replaced.empty()) return;
  std::fprintf(stderr, "%s replaces %s, when the new output is complete\n",
               Coloured(stderr, Colour::kDim, "note:").c_str(), absl::StrJoin(replaced, ", ").c_str());
}

}  // namespace cairn::cli
