#include "import/safetensors_directory.h"

#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/digest.h"
#include "common/file/posix.h"
#include "common/format/plain_header.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "import/bounded_json.h"
#include "import/foreign_file.h"

namespace cairn {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;
// These are transformers' names of the output layer, and of the embeddings that it may be tied to.
constexpr char kHead[] = "lm_head.weight";
constexpr const char* kEmbeddings[] = {"model.embed_tokens.weight", "transformer.wte.weight",
                                       "model.language_model.embed_tokens.weight", "gpt_neox.embed_in.weight"};

class Importer {
 public:
  explicit Importer(std::string directory) : directory_(std::move(directory)) {}

  absl::StatusOr<Manifest> Read() {
    CAIRN_RETURN_IF_ERROR(FindFiles());
    Digester digester;
    digester.Add("cairn import 1");
    for (const std::string& name : files_) CAIRN_RETURN_IF_ERROR(ReadFile(name, digester));
    CAIRN_RETURN_IF_ERROR(CheckIndex());
    CAIRN_RETURN_IF_ERROR(FindTiedHead(digester));
    manifest_.plan_digest = digester.Finish();
    for (auto& [name, found] : tensors_) {
      const auto number = static_cast<uint32_t>(manifest_.tensors.size());
      ManifestTensor& tensor = manifest_.tensors.emplace_back();
      tensor.name = name;
      tensor.dtype = found.tensor.dtype;
      tensor.global_shape = found.tensor.shape;
      tensor.first_shard = static_cast<uint32_t>(manifest_.shards.size());
      if (found.tensor.begin == found.tensor.end) continue;  // a bin holds no empty shards
      tensor.shard_count = 1;
      ManifestShard& shard = manifest_.shards.emplace_back();
      shard.tensor = number;
      shard.file = found.file;
      shard.item = found.item;
      shard.file_offset = manifest_.files[found.file].header_bytes + found.tensor.begin;
      shard.bytes = found.tensor.end - found.tensor.begin;
      shard.dims = static_cast<uint32_t>(manifest_.dims.size());
      manifest_.dims.insert(manifest_.dims.end(), tensor.global_shape.size(), 0);
      manifest_.dims.insert(manifest_.dims.end(), tensor.global_shape.begin(), tensor.global_shape.end());
    }
    return std::move(manifest_);
  }

 private:
  struct Found {
    PlainTensor tensor;
    uint32_t file;
    uint32_t item;
  };

  absl::Status Bad(const std::string& message, const std::string& file) const {
    return MakeError(Reason::kBadSafetensors, message, {{"file", file}});
  }

  absl::Status FindFiles() {
    const std::string path = absl::StrCat(directory_, "/", std::string(kPlainIndexName));
    auto opened = ForeignFile::Open(path);
    if (opened.ok()) {
      const uint64_t bytes = opened->bytes();
      if (bytes > kMaxIndexBytes) return Bad(absl::StrCat(path, " has ", bytes, " bytes"), path);
      CAIRN_ASSIGN_OR_RETURN(const std::string text, opened->Read(0, bytes));
      auto index = ParsePlainIndex(text);
      if (!index.ok()) return Annotate(index.status(), path, {{"file", path}});
      index_ = *std::move(index);
      for (const auto& [tensor, file] : index_->weight_map) files_.push_back(file);
      std::sort(files_.begin(), files_.end());
      files_.erase(std::unique(files_.begin(), files_.end()), files_.end());
    } else if (HasReason(opened.status(), Reason::kFileMissing)) {
      CAIRN_ASSIGN_OR_RETURN(const auto root, PosixStorage::Open("/", false));
      CAIRN_ASSIGN_OR_RETURN(const auto entries, root->List(directory_.substr(1)));
      for (const PosixStorage::Entry& entry : entries) {
        if (!entry.directory && entry.name.ends_with(".safetensors") && !entry.name.starts_with(".")) {
          files_.push_back(entry.name);
        }
      }
    } else {
      return opened.status();
    }
    if (!index_) CAIRN_RETURN_IF_ERROR(CheckNumbered());
    if (files_.empty()) {
      return MakeError(Reason::kFileMissing,
                       absl::StrCat(directory_, " holds no safetensors files, and no metadata of another library"),
                       {{"file", directory_},
                        {"next",
                         "Give a directory of torch.distributed.checkpoint, torchsnapshot, Paddle, DeepSpeed or "
                         "safetensors files, or a file of torch.save or paddle.save."}});
    }
    return absl::OkStatus();
  }

  // Files of one model say in their names how many they are: model-00001-of-00003.safetensors. An index would say which
  // are missing; a writer that was killed has none.
  absl::Status CheckNumbered() const {
    std::map<std::string, int64_t> left;  // by the name without its number
    static const LazyRE2 kNumbered = {R"((.*-)[0-9]{1,9}(-of-([0-9]{1,9})\.safetensors))"};
    for (const std::string& name : files_) {
      std::string before, behind;
      int64_t total = 0;
      if (!RE2::FullMatch(name, *kNumbered, &before, &behind, &total)) continue;
      --left.try_emplace(absl::StrCat(before, "*", behind), total).first->second;
    }
    for (const auto& [names, missing] : left) {
      if (missing <= 0) continue;
      return MakeError(Reason::kFileMissing,
                       absl::StrCat(directory_, " has no ", std::string(kPlainIndexName), ", and lacks ", missing,
                                    " of the files ", names, ": was whoever wrote them stopped?"),
                       {{"file", absl::StrCat(directory_, "/", names)},
                        {"next", "Copy all files of the model again, or let their writer end."}});
    }
    return absl::OkStatus();
  }

  absl::Status ReadFile(const std::string& name, Digester& digester) {
    CAIRN_ASSIGN_OR_RETURN(const std::string path, ResolvePath(absl::StrCat(directory_, "/", name)));
    CAIRN_ASSIGN_OR_RETURN(const ForeignFile opened, ForeignFile::Open(path));
    const uint64_t bytes = opened.bytes();
    CAIRN_ASSIGN_OR_RETURN(const std::string first, opened.Read(0, std::min<uint64_t>(8, bytes)));
    const auto annotated = [&](const absl::Status& status) {
      return Annotate(status, absl::StrCat(directory_, "/", name), {{"file", path}});
    };
    const auto header_bytes = PlainHeaderBytesFrom(first, bytes);
    if (!header_bytes.ok()) return annotated(header_bytes.status());
    CAIRN_ASSIGN_OR_RETURN(const std::string header, opened.Read(0, *header_bytes));
    auto tensors = ParsePlainHeader(header, bytes);
    if (!tensors.ok()) return annotated(tensors.status());
    const auto number = static_cast<uint32_t>(manifest_.files.size());
    ManifestFile& file = manifest_.files.emplace_back();
    file.name = path;
    file.header_bytes = *header_bytes;
    file.data_bytes = bytes - *header_bytes;
    file.header_crc32c = Crc32c(header.data(), header.size());
    opened.AddTo(digester);
    digester.Add(Digest(header));
    for (uint32_t i = 0; i < tensors->size(); ++i) {
      const std::string tensor = (*tensors)[i].name;
      const auto [at, fresh] = tensors_.try_emplace(tensor, Found{std::move((*tensors)[i]), number, i});
      if (!fresh) {
        return Bad(absl::StrCat("'", tensor, "' stands in both ", manifest_.files[at->second.file].name, " and ", path),
                   path);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckIndex() const {
    if (!index_) return absl::OkStatus();
    size_t indexed = 0;
    for (const auto& [tensor, name] : index_->weight_map) {
      const auto found = tensors_.find(tensor);
      const auto number = static_cast<uint32_t>(std::lower_bound(files_.begin(), files_.end(), name) - files_.begin());
      if (found == tensors_.end() || found->second.file != number) {
        return Bad(absl::StrCat(directory_, ": the index says that '", tensor, "' is in ", name, ", but it is not"),
                   name);
      }
      ++indexed;
    }
    for (const auto& [tensor, found] : tensors_) {
      if (indexed == tensors_.size()) break;
      if (!std::binary_search(index_->weight_map.begin(), index_->weight_map.end(),
                              std::pair(tensor, files_[found.file]))) {
        return Bad(absl::StrCat(directory_, ": '", tensor, "' of ", files_[found.file], " is not in the index"),
                   files_[found.file]);
      }
    }
    return absl::OkStatus();
  }

  // A model whose output layer is tied to its embedding is stored without it, and config.json says so.
  absl::Status FindTiedHead(Digester& digester) {
    if (tensors_.contains(kHead)) return absl::OkStatus();
    const auto file = ForeignFile::Open(absl::StrCat(directory_, "/config.json"));
    if (HasReason(file.status(), Reason::kFileMissing)) return absl::OkStatus();
    if (!file.ok()) return file.status();
    if (file->bytes() > kMaxConfigBytes) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(const std::string text, file->Read(0, file->bytes()));
    const auto config = ParseBoundedJson(text);
    if (!config.is_object() || config.value("tie_word_embeddings", nlohmann::json()) != nlohmann::json(true)) {
      return absl::OkStatus();
    }
    for (const char* embedding : kEmbeddings) {
      if (!tensors_.contains(embedding)) continue;
      manifest_.aliases.emplace_back(kHead, embedding);
      digester.Add(kHead).Add(embedding);
      break;
    }
    return absl::OkStatus();
  }

  const std::string directory_;
  std::optional<PlainIndex> index_;
  std::vector<std::string> files_;
  std::map<std::string, Found> tensors_;
  Manifest manifest_;
};

}  // namespace

absl::StatusOr<Manifest> ReadSafetensorsDirectory(const std::string& directory) { return Importer(directory).Read(); }

}  // namespace cairn
