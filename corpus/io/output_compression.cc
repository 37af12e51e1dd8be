#include "corpus/io/output_compression.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/open_source.h"

namespace cairn::corpus {
namespace {

// Returns where the ending of the name begins, with its dot, or the size of `path`. A dot that begins a name hides it.
size_t EndingPlace(const std::string& path) {
  const size_t name = path.rfind('/') + 1;  // npos + 1 is 0
  const size_t dot = path.rfind('.');
  return dot == std::string::npos || dot <= name ? path.size() : dot;
}

// Returns whether a name says a format that no text is written in.
bool IsNeverWritten(const std::string& path, const std::string& ending) {
  if (CompressionOf(path) == Compression::kXz || IsTable(path) || IsTar(path)) return true;
  constexpr std::string_view kUnknown[] = {".bz2", ".lz4", ".7z", ".zip", ".tgz"};
  return std::any_of(std::begin(kUnknown), std::end(kUnknown),
                     [name = absl::AsciiStrToLower(ending)](std::string_view unknown) { return name == unknown; });
}

}  // namespace

absl::StatusOr<Compression> CompressionForOutput(const std::string& path, std::optional<Compression> asked) {
  const size_t place = EndingPlace(path);
  const std::string ending = path.substr(place);
  if (ending.empty()) return asked.value_or(Compression::kNone);
  if (IsNeverWritten(path, ending)) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("--output ", path, ": lines are not written as ",
                                  IsTar(path) ? std::string("a tar") : ending, ", and readers go by the ending"),
                     {{"file", path},
                      {"next", "Name the output for what is written: plain lines, as .jsonl, or with .gz or .zst."}});
  }
  const Compression named = CompressionOf(path);
  if (asked.value_or(named) == named) return named;
  const std::string flag = *asked == Compression::kGzip ? "gz" : "zst";
  const std::string stem = named == Compression::kNone ? path : path.substr(0, place);
  return MakeError(
      Reason::kBadRequest,
      absl::StrCat("--compress ", flag, " and --output ", path, " disagree, and readers go by the ending"),
      {{"file", path}, {"next", absl::StrCat("Name the output ", stem, ".", flag, ", or leave --compress out.")}});
}

}  // namespace cairn::corpus
