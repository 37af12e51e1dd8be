#include "foreign/read/paddle/paddle_directory.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/paddle/paddle_file.h"
#include "foreign/read/paddle/paddle_metadata.h"
#include "foreign/read/source/described_files.h"
#include "foreign/read/source/foreign_file.h"
#include "foreign/read/source/foreign_manifest.h"
#include "foreign/read/source/plain_file.h"
#include "foreign/read/source/strided_tensor.h"

namespace cairn {
namespace {

constexpr size_t kMostPieces = size_t{1} << 16;
constexpr std::string_view kMetadataEnding = ".metadata";

using Arrays = absl::flat_hash_map<std::string, StridedTensor>;

absl::StatusOr<Arrays> ReadSafetensors(const ForeignFile& file) {
  CAIRN_ASSIGN_OR_RETURN(const PlainFile plain_file, ReadPlainFile(file, file.path()));
  Arrays arrays;
  for (const PlainTensor& plain : plain_file.header.tensors) {
    StridedTensor& array = arrays[plain.name];
    array.dtype = plain.dtype;
    array.shape = plain.shape;
    array.strides = RowMajorStrides(plain.shape);
    array.offset = plain_file.bytes.size() + plain.begin;
  }
  return arrays;
}

absl::StatusOr<Arrays> ReadPickled(const ForeignFile& file) {
  CAIRN_ASSIGN_OR_RETURN(const PaddleFile opened, PaddleFile::Open(file));
  const PickleDocument& document = opened.document();
  Arrays arrays;
  absl::Status status;
  document.ForEachPair(document.root(), [&](PickleValue key, PickleValue value) {
    const auto name = document.Text(key);
    if (!status.ok() || !name.has_value()) return;
    const auto array = opened.Tensor(value);
    if (!array.ok()) {
      status = WithMetadata(array.status(), {{"tensor", std::string(*name)}});
    } else if (array->has_value()) {
      arrays.insert_or_assign(std::string(*name), **array);  // as in Python, the last one counts
    }
  });
  CAIRN_RETURN_IF_ERROR(status);
  return arrays;
}

// Paddle stores elements for which numpy has no dtype as integers of the same size. PaddleFile returns integers of two
// bytes as bfloat16.
bool IsStoredAs(DType told, DType stored) {
  switch (stored) {
    case DType::kBfloat16:
      return told == DType::kBfloat16 || told == DType::kUint16;
    case DType::kUint8:
    case DType::kInt8:
      return told == stored || told == DType::kFloat8E4m3fn || told == DType::kFloat8E5m2;
    default:
      return told == stored;
  }
}

class DirectoryReader {
 public:
  DirectoryReader(const std::string& directory, PaddleMetadata metadata)
      : directory_(directory), metadata_(std::move(metadata)), pieces_(metadata_.shards.size()) {}

  // Finds the pieces of all shards, by several threads: each read waits for storage.
  absl::Status Read() {
    files_.resize(metadata_.files.size());
    first_shard_ = FirstOfEachFile(metadata_.shards, metadata_.files.size());
    return ReadEachFile(metadata_.files.size(), [this](size_t file) { return ReadFile(file); });
  }

  absl::StatusOr<Manifest> MakeManifest(std::string_view metadata_digest) && {
    ForeignManifest manifest("cairn import paddle 1");
    for (const std::optional<ForeignFile>& file : files_) manifest.AddFile(*file);
    manifest.AddDigest(metadata_digest);
    for (PaddleTensor& tensor : metadata_.tensors) manifest.AddTensor(tensor.name, tensor.dtype, tensor.global_shape);
    for (size_t s = 0; s < metadata_.shards.size(); ++s) {
      const PaddleShard& shard = metadata_.shards[s];
      for (const StridedTensor::Piece& piece : pieces_[s]) {
        manifest.AddPiece(shard.tensor, piece.box.offset, piece.box.shape, shard.file, piece.offset);
      }
    }
    return std::move(manifest).Finish();
  }

 private:
  using Pieces = std::vector<StridedTensor::Piece>;

  absl::Status ReadFile(size_t number);
  absl::StatusOr<Pieces> PiecesOf(const PaddleShard& shard, const ForeignFile& file, const Arrays& arrays) const;

  const std::string& directory_;
  PaddleMetadata metadata_;
  std::vector<size_t> first_shard_;                // of each file
  std::vector<std::optional<ForeignFile>> files_;  // set by the thread that reads the file
  std::vector<Pieces> pieces_;                     // of each shard, in the whole tensor; set by that thread
};

absl::Status DirectoryReader::ReadFile(size_t number) {
  CAIRN_ASSIGN_OR_RETURN(ForeignFile file, ForeignFile::OpenBelow(directory_, metadata_.files[number]));
  const bool safetensors = metadata_.files[number].ends_with(".safetensors");
  CAIRN_ASSIGN_OR_RETURN(const Arrays arrays, safetensors ? ReadSafetensors(file) : ReadPickled(file));
  for (size_t s = first_shard_[number]; s < first_shard_[number + 1]; ++s) {
    CAIRN_ASSIGN_OR_RETURN(pieces_[s], PiecesOf(metadata_.shards[s], file, arrays));
  }
  file.Close();
  files_[number] = std::move(file);
  return absl::OkStatus();
}

absl::StatusOr<DirectoryReader::Pieces> DirectoryReader::PiecesOf(const PaddleShard& shard, const ForeignFile& file,
                                                                  const Arrays& arrays) const {
  const PaddleTensor& tensor = metadata_.tensors[shard.tensor];
  const ErrorMetadata place = {{"file", file.path()}, {"tensor", tensor.name}};
  const Box box = metadata_.box_of(shard);
  const auto found = arrays.find(tensor.name);
  if (found == arrays.end()) {
    return MakeError(Reason::kBadForeignFile,
                     absl::StrCat(file.path(), " lacks '", tensor.name, "', which its metadata says is in it"), place);
  }
  const StridedTensor& array = found->second;
  const Shape shape = shard.flat ? Shape{shard.flat->size()} : box.shape;
  if (!IsStoredAs(tensor.dtype, array.dtype) || array.shape != shape) {
    return MakeError(Reason::kBadForeignFile,
                     absl::StrCat(file.path(), " has '", tensor.name, "' as ", std::string(NameOf(array.dtype)),
                                  ShapeToString(array.shape), ", its metadata says ", std::string(NameOf(tensor.dtype)),
                                  ShapeToString(shape)),
                     place);
  }
  auto pieces = array.Pieces(kMostPieces);
  if (!pieces) {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat(file.path(), " has '", tensor.name, "' with strides ", ShapeToString(array.strides),
                                  ", which would take too many reads"),
                     place);
  }
  if (shard.flat) {
    std::vector<Box> boxes;
    AppendBoxes(box.shape, *shard.flat, boxes);
    pieces->clear();
    uint64_t offset = array.offset;
    for (const Box& part : boxes) {
      pieces->push_back({part, offset});
      offset += static_cast<uint64_t>(part.size()) * static_cast<uint64_t>(BytesOf(tensor.dtype));
    }
  }
  for (StridedTensor::Piece& piece : *pieces) {
    for (size_t d = 0; d < box.offset.size(); ++d) piece.box.offset[d] += box.offset[d];
  }
  return *std::move(pieces);
}

}  // namespace

absl::StatusOr<std::string> FindPaddleMetadata(const std::string& directory) {
  const auto entries = ListForeign(directory);
  if (HasReason(entries.status(), Reason::kFileMissing)) return "";
  CAIRN_RETURN_IF_ERROR(entries.status());
  std::vector<std::string> names;
  for (const ForeignEntry& entry : *entries) {
    if (entry.directory || !entry.name.ends_with(kMetadataEnding)) continue;
    const std::string number = entry.name.substr(0, entry.name.size() - kMetadataEnding.size());
    if (!number.empty() && std::all_of(number.begin(), number.end(), absl::ascii_isdigit)) names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  if (names.size() <= 1) return names.empty() ? "" : names[0];
  return MakeError(Reason::kBadForeignFile,
                   absl::StrCat(directory, " holds ", names[0], " and ", names[1], ", of several saves"),
                   {{"file", absl::StrCat(directory, "/", names[1])},
                    {"next",
                     "Move the files of one save (NUMBER.metadata and *_NUMBER.distcp) to a directory of "
                     "their own, and give that."}});
}

absl::StatusOr<Manifest> ReadPaddleDirectory(const std::string& directory, const std::string& metadata_name) {
  CAIRN_ASSIGN_OR_RETURN(auto file, ReadMetadataFile(directory, metadata_name, ReadPaddleMetadata));
  DirectoryReader reader(directory, std::move(file.metadata));
  CAIRN_RETURN_IF_ERROR(reader.Read());
  return std::move(reader).MakeManifest(file.digest);
}

}  // namespace cairn
