#include "foreign/read/dcp/dcp_directory.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/dcp/dcp_metadata.h"
#include "foreign/read/dcp/per_rank_values.h"
#include "foreign/read/source/described_files.h"
#include "foreign/read/source/foreign_file.h"
#include "foreign/read/source/foreign_manifest.h"
#include "foreign/read/torch/torch_file.h"

namespace cairn {
namespace {

// A transposed chunk is cut into pieces, at most this many.
constexpr size_t kMostPieces = size_t{1} << 16;

// The contiguous pieces of one chunk, with their places in the file.
using Pieces = std::vector<StridedTensor::Piece>;

class DirectoryReader {
 public:
  DirectoryReader(const std::string& directory, DcpMetadata metadata)
      : directory_(directory), metadata_(std::move(metadata)), pieces_(metadata_.entries.size()) {}

  // Reads the descriptions of all tensors, by several threads: each read waits for storage.
  absl::Status Read() {
    files_.resize(metadata_.files.size());
    first_entry_ = FirstOfEachFile(metadata_.entries, metadata_.files.size());
    return ReadEachFile(metadata_.files.size(), [this](size_t file) { return ReadFile(file); });
  }

  bool Has(std::string_view name) const {
    return std::binary_search(metadata_.values.begin(), metadata_.values.end(), name) ||
           std::any_of(metadata_.tensors.begin(), metadata_.tensors.end(),
                       [&](const DcpTensor& tensor) { return tensor.name == name; }) ||
           std::any_of(metadata_.aliases.begin(), metadata_.aliases.end(),
                       [&](const auto& alias) { return alias.first == name; });
  }

  absl::StatusOr<Manifest> MakeManifest(std::string_view metadata_digest, const std::optional<ForeignFile>& common,
                                        const std::optional<PerRankFile>& of_ranks) && {
    ForeignManifest manifest("cairn import dcp 1");
    for (const std::optional<ForeignFile>& file : files_) manifest.AddFile(*file);
    manifest.AddDigest(metadata_digest);
    for (DcpTensor& tensor : metadata_.tensors) manifest.AddTensor(tensor.name, tensor.dtype, tensor.global_shape);
    for (const auto& [name, target] : metadata_.aliases) manifest.AddAlias(name, target);
    std::vector<const DcpEntry*> values(metadata_.values.size());
    Shape offset;
    for (size_t e = 0; e < metadata_.entries.size(); ++e) {
      const DcpEntry& entry = metadata_.entries[e];
      if (entry.tensor == DcpEntry::kNoTensor) {
        values[entry.value] = &entry;
        continue;
      }
      const auto origin = metadata_.offset_of(entry);
      for (const StridedTensor::Piece& piece : pieces_[e]) {
        offset = piece.box.offset;
        for (size_t d = 0; d < offset.size(); ++d) offset[d] += origin[d];
        manifest.AddPiece(entry.tensor, offset, piece.box.shape, entry.file, piece.offset);
      }
      pieces_[e] = Pieces();
    }
    std::vector<Value> all;
    for (size_t v = 0; v < values.size(); ++v) {
      if (of_ranks && StandsFor(of_ranks->values, metadata_.values[v])) continue;
      all.push_back({metadata_.values[v], std::nullopt, values[v]->file, values[v]->offset, values[v]->bytes});
    }
    if (common) {
      all.push_back({std::string(kMegatronCommonName), std::nullopt, manifest.AddFile(*common), 0, common->bytes()});
    }
    if (of_ranks) {
      const uint32_t file = manifest.AddFile(of_ranks->file);
      absl::flat_hash_set<std::string> taken;
      for (const Value& value : all) taken.insert(value.name);
      for (const DcpTensor& tensor : metadata_.tensors) taken.insert(tensor.name);
      for (const auto& [name, target] : metadata_.aliases) taken.insert(name);
      for (const PerRankValue& value : of_ranks->values.values) {
        if (taken.contains(value.name)) {
          return MakeError(Reason::kNameCollision,
                           absl::StrCat(of_ranks->file.path(), " has '", value.name, "', and so has the metadata"),
                           {{"file", of_ranks->file.path()}, {"names", value.name}});
        }
        all.push_back({value.name, value.rank, file, value.offset, value.bytes});
      }
    }
    std::stable_sort(all.begin(), all.end(), [](const Value& a, const Value& b) { return a.name < b.name; });
    for (Value& value : all) {
      if (value.rank) {
        manifest.AddValueOfRank(std::move(value.name), *value.rank, of_ranks->values.world_size, value.file,
                                value.offset, value.bytes);
      } else {
        manifest.AddValue(std::move(value.name), value.file, value.offset, value.bytes);
      }
    }
    return std::move(manifest).Finish();
  }

 private:
  struct Value {
    std::string name;
    std::optional<int> rank;
    uint32_t file = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  static bool StandsFor(const PerRankValues& values, const std::string& name) {
    return std::binary_search(values.stands_for.begin(), values.stands_for.end(), name);
  }
  absl::Status ReadFile(size_t number);
  absl::StatusOr<Pieces> ReadChunk(const ForeignFile& file, const DcpEntry& entry) const;

  const std::string& directory_;
  DcpMetadata metadata_;
  std::vector<size_t> first_entry_;                // of each file
  std::vector<std::optional<ForeignFile>> files_;  // set by the thread that reads the file
  std::vector<Pieces> pieces_;                     // of each entry; set by the thread that reads its file
};

absl::Status DirectoryReader::ReadFile(size_t number) {
  CAIRN_ASSIGN_OR_RETURN(ForeignFile file, ForeignFile::OpenBelow(directory_, metadata_.files[number]));
  for (size_t e = first_entry_[number]; e < first_entry_[number + 1]; ++e) {
    const DcpEntry& entry = metadata_.entries[e];
    if (entry.tensor == DcpEntry::kNoTensor) continue;
    CAIRN_ASSIGN_OR_RETURN(pieces_[e], ReadChunk(file, entry));
  }
  file.Close();
  files_[number] = std::move(file);
  return absl::OkStatus();
}

absl::StatusOr<Pieces> DirectoryReader::ReadChunk(const ForeignFile& file, const DcpEntry& entry) const {
  const DcpTensor& tensor = metadata_.tensors[entry.tensor];
  const std::string what = absl::StrCat(file.path(), " at ", entry.offset, " ('", tensor.name, "')");
  const auto read = [&](uint64_t offset, uint64_t bytes) { return file.Read(entry.offset + offset, bytes); };
  if (entry.bytes > file.bytes() || entry.offset > file.bytes() - entry.bytes) {
    return MakeError(Reason::kFileTruncated,
                     absl::StrCat(file.path(), " has ", file.bytes(), " bytes, but '", tensor.name, "' takes ",
                                  entry.bytes, " bytes at ", entry.offset),
                     {{"file", file.path()}, {"tensor", tensor.name}});
  }
  const ErrorMetadata place = {{"file", file.path()}, {"offset", absl::StrCat(entry.offset)}, {"tensor", tensor.name}};
  const auto opened = TorchFile::Open(entry.bytes, read, what);
  if (!opened.ok()) return WithMetadata(opened.status(), place);
  const auto stored = opened->Tensor(opened->document().root());
  if (!stored.ok()) return WithMetadata(stored.status(), place);
  const auto shape = metadata_.shape_of(entry);
  if (!stored->has_value()) {
    return MakeError(
        Reason::kUnsupported,
        absl::StrCat(what, " is ", opened->document().Describe(opened->document().root()), ", not a tensor"), place);
  }
  const StridedTensor& chunk = **stored;
  if (chunk.dtype != tensor.dtype || !std::equal(shape.begin(), shape.end(), chunk.shape.begin(), chunk.shape.end())) {
    return MakeError(Reason::kBadForeignFile,
                     absl::StrCat(what, " has ", std::string(NameOf(chunk.dtype)), ShapeToString(chunk.shape),
                                  ", its metadata says ", std::string(NameOf(tensor.dtype)), ShapeToString(shape)),
                     place);
  }
  auto pieces = chunk.Pieces(kMostPieces);
  if (!pieces) {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat(what, " is stored with strides ", ShapeToString(chunk.strides),
                                  ", which would take too many reads"),
                     place);
  }
  for (StridedTensor::Piece& piece : *pieces) piece.offset += entry.offset;
  return *std::move(pieces);
}

// Opens the file common.pt of a checkpoint of Megatron-core; nothing if the directory is no such checkpoint.
absl::StatusOr<std::optional<ForeignFile>> OpenMegatronCommon(const std::string& directory) {
  const auto marker = ForeignFile::OpenBelow(directory, kMegatronMarkerName);
  if (HasReason(marker.status(), Reason::kFileMissing)) return std::nullopt;
  CAIRN_RETURN_IF_ERROR(marker.status());
  auto common = ForeignFile::OpenBelow(directory, kMegatronCommonName);
  if (HasReason(common.status(), Reason::kFileMissing)) return std::nullopt;
  CAIRN_RETURN_IF_ERROR(common.status());
  common->Close();
  return std::make_optional(*std::move(common));
}

}  // namespace

absl::StatusOr<Manifest> ReadDcpDirectory(const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(auto file, ReadMetadataFile(directory, kDcpMetadataName, ReadDcpMetadata));
  DirectoryReader reader(directory, std::move(file.metadata));
  CAIRN_RETURN_IF_ERROR(reader.Read());
  CAIRN_ASSIGN_OR_RETURN(const auto common, OpenMegatronCommon(directory));
  CAIRN_ASSIGN_OR_RETURN(const auto of_ranks, ReadPerRankFile(directory, file.digest));
  if (common && reader.Has(kMegatronCommonName)) {
    return MakeError(Reason::kNameCollision,
                     absl::StrCat(file.path, " has '", std::string(kMegatronCommonName),
                                  "', and there is such a file, whose value would have the same name"),
                     {{"file", file.path}, {"names", std::string(kMegatronCommonName)}});
  }
  return std::move(reader).MakeManifest(file.digest, common, of_ranks);
}

}  // namespace cairn
