#include "store/repair/bin_headers.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr std::string_view kEnding = ".safetensors";

// Returns the rank that a name like "rank00003-bin01" or "rank00003-bin01-part2" has.
std::optional<int> RankOf(std::string_view name) {
  const size_t end = name.find("-bin");
  int rank = 0;
  if (!name.starts_with("rank") || end == std::string_view::npos ||
      !absl::SimpleAtoi(absl::string_view(name.data() + 4, end - 4), &rank) || rank < 0) {
    return std::nullopt;
  }
  return rank;
}

absl::StatusOr<BinHeader> ReadBinHeader(Storage& storage, const std::string& path, absl::Time& written) {
  CAIRN_ASSIGN_OR_RETURN(const auto file, storage.Open(path));
  std::string bytes(8, '\0');
  CAIRN_RETURN_IF_ERROR(file->Read(0, bytes.size(), bytes.data()));
  const auto length = HeaderBytesFrom(bytes);
  if (!length.ok()) return Annotate(length.status(), path, {{"file", path}});
  const uint64_t size = file->bytes();
  if (size < *length) {
    return MakeError(Reason::kFileTruncated, absl::StrCat(path, " has ", size, " bytes, its header alone ", *length),
                     {{"file", path}});
  }
  bytes.resize(*length);
  CAIRN_RETURN_IF_ERROR(file->Read(0, bytes.size(), bytes.data()));
  auto header = ParseHeader(bytes);
  if (!header.ok()) return Annotate(header.status(), path, {{"file", path}});
  if (size != header->header_bytes + header->data_bytes) {
    return MakeError(
        Reason::kFileTruncated,
        absl::StrCat(path, " has ", size, " bytes, its header says ", header->header_bytes + header->data_bytes),
        {{"file", path}});
  }
  written = std::max(written, file->modified());
  BinHeader bin;
  bin.header_crc32c = Crc32c(bytes.data(), bytes.size());
  bin.header = *std::move(header);
  return bin;
}

}  // namespace

absl::StatusOr<BinHeaders> ReadBinHeaders(Storage& storage, const std::string& job, int64_t step, uint32_t attempt) {
  const std::string directory = AttemptDirectory(job, step, attempt);
  CAIRN_ASSIGN_OR_RETURN(const auto entries, storage.List(directory));
  BinHeaders headers;
  for (const Storage::Entry& entry : entries) {
    if (!entry.name.ends_with(kEnding)) continue;
    const std::string path = absl::StrCat(directory, "/", entry.name);
    const std::string name = entry.name.substr(0, entry.name.size() - kEnding.size());
    const auto rank = RankOf(name);
    if (!rank) {
      return MakeError(Reason::kBadSafetensors, absl::StrCat(path, " is no file of a checkpoint"), {{"file", path}});
    }
    CAIRN_ASSIGN_OR_RETURN(BinHeader bin, ReadBinHeader(storage, path, headers.written));
    bin.name = name;
    bin.rank = *rank;
    headers.bins.push_back(std::move(bin));
  }
  if (!headers.bins.empty()) return headers;
  return MakeError(Reason::kFileMissing, absl::StrCat(storage.FullPath(directory), " holds no file of a checkpoint"),
                   {{"job", job}, {"step", absl::StrCat(step)}, {"file", directory}});
}

}  // namespace cairn
