#include "foreign/read/huggingface/safetensors_directory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/crc32c.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/huggingface/numbered_files.h"
#include "foreign/read/huggingface/tied_names.h"
#include "foreign/read/source/described_files.h"
#include "foreign/read/source/foreign_file.h"
#include "foreign/read/source/plain_file.h"
#include "foreign/read/source/plain_header.h"

namespace cairn {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;
class Importer {
 public:
  explicit Importer(std::string directory) : directory_(std::move(directory)) {}

  absl::StatusOr<Manifest> Read() {
    CAIRN_RETURN_IF_ERROR(FindFiles());
    Digester digester;
    digester.Add("cairn import 1");
    CAIRN_RETURN_IF_ERROR(ReadHeaders());
    for (OpenedFile& file : opened_) CAIRN_RETURN_IF_ERROR(AddFile(file, digester));
    CAIRN_RETURN_IF_ERROR(CheckIndex());
    CAIRN_RETURN_IF_ERROR(FindTies(digester));
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
      CAIRN_ASSIGN_OR_RETURN(files_, FilesThere());
    } else {
      return opened.status();
    }
    CAIRN_RETURN_IF_ERROR(index_ ? CheckListed() : CheckNumbered());
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

  // An index would show which files are missing, but a writer that was killed has not written one.
  absl::Status CheckNumbered() const {
    for (const auto& [names, set] : FindNumberedFiles(files_)) {
      if (set.missing() <= 0) continue;
      return MakeError(Reason::kFileMissing,
                       absl::StrCat(directory_, " has no ", std::string(kPlainIndexName), ", and lacks ", set.missing(),
                                    " of the files ", names, ": was the program that wrote them stopped?"),
                       {{"file", absl::StrCat(directory_, "/", names)},
                        {"next", "Copy all files of the model again, or let their writer end."}});
    }
    return absl::OkStatus();
  }

  // If several programs wrote into one directory, the index may list only a part of a numbered set.
  absl::Status CheckListed() const {
    std::vector<std::string> there;  // found in the directory when it is needed first
    for (const auto& [names, listed] : FindNumberedFiles(files_)) {
      if (listed.missing() <= 0) continue;
      if (there.empty()) {
        CAIRN_ASSIGN_OR_RETURN(there, FilesThere());
      }
      const auto sets = FindNumberedFiles(there);
      const auto found = sets.find(names);
      int64_t missing = listed.missing();
      std::vector<std::string> left_out;
      for (const std::string& name : found == sets.end() ? std::vector<std::string>() : found->second.names) {
        if (std::binary_search(files_.begin(), files_.end(), name)) continue;
        --missing;
        CAIRN_ASSIGN_OR_RETURN(const OpenedFile opened, Open(name));
        std::vector<std::string> held;
        for (const PlainTensor& tensor : opened.content.header.tensors)
          held.push_back(absl::StrCat("'", tensor.name, "'"));
        if (!held.empty()) left_out.push_back(absl::StrCat(name, " with ", FirstOf(held)));
      }
      if (missing <= 0 && left_out.empty()) continue;  // files without tensors may be left out
      return Unlisted(names, listed, left_out, missing);
    }
    return absl::OkStatus();
  }

  absl::Status Unlisted(const std::string& names, const NumberedFiles& listed, const std::vector<std::string>& left_out,
                        int64_t missing) const {
    const std::string index = absl::StrCat(directory_, "/", std::string(kPlainIndexName));
    std::string lacking;
    if (!left_out.empty()) absl::StrAppend(&lacking, "; it leaves out ", FirstOf(left_out));
    if (missing > 0) absl::StrAppend(&lacking, "; ", missing, missing == 1 ? " is" : " are", " not there");
    return MakeError(
        missing > 0 ? Reason::kFileMissing : Reason::kBadSafetensors,
        absl::StrCat(index, " lists ", listed.numbers.size(), " of the ", listed.total, " files ", names, lacking),
        {{"file", index},
         {"next", absl::StrCat(missing > 0 ? "Copy all files of the model and its index again."
                                           : "If all files are of the model, remove the index: then all "
                                             "of them are read.",
                               " If only those that the index lists are meant, give them names without "
                               "\"-of-\", in the index too.")}});
  }

  // Returns the first few names, and the number of the others.
  static std::string FirstOf(const std::vector<std::string>& all) {
    constexpr size_t kTold = 5;
    const size_t told = std::min(all.size(), kTold);
    std::string text = absl::StrJoin(all.begin(), all.begin() + static_cast<ptrdiff_t>(told), ", ");
    if (told < all.size()) absl::StrAppend(&text, " and ", all.size() - told, " more");
    return text;
  }

  // Returns the names of all safetensors files of the directory, in order.
  absl::StatusOr<std::vector<std::string>> FilesThere() const {
    CAIRN_ASSIGN_OR_RETURN(const auto entries, ListForeign(directory_));
    std::vector<std::string> names;
    for (const ForeignEntry& entry : entries) {
      if (!entry.directory && entry.name.ends_with(".safetensors") && !entry.name.starts_with(".")) {
        names.push_back(entry.name);
      }
    }
    return names;
  }

  struct OpenedFile {
    ForeignFile file;
    PlainFile content;
  };

  absl::StatusOr<OpenedFile> Open(const std::string& name) const {
    const std::string path = absl::StrCat(directory_, "/", name);
    CAIRN_ASSIGN_OR_RETURN(ForeignFile file, ForeignFile::Open(path));
    CAIRN_ASSIGN_OR_RETURN(PlainFile content, ReadPlainFile(file, path));
    file.Close();  // there may be more files than a process can have open
    return OpenedFile{std::move(file), std::move(content)};
  }

  absl::Status ReadHeaders() {
    std::vector<std::optional<OpenedFile>> opened(files_.size());
    CAIRN_RETURN_IF_ERROR(ReadEachFile(files_.size(), [&](size_t number) -> absl::Status {
      CAIRN_ASSIGN_OR_RETURN(opened[number], Open(files_[number]));
      return absl::OkStatus();
    }));
    for (std::optional<OpenedFile>& each : opened) opened_.push_back(*std::move(each));
    return absl::OkStatus();
  }

  absl::Status AddFile(OpenedFile& opened, Digester& digester) {
    const auto number = static_cast<uint32_t>(manifest_.files.size());
    ManifestFile& file = manifest_.files.emplace_back();
    const std::string header = std::exchange(opened.content.bytes, {});
    file.name = opened.file.path();
    file.header_bytes = header.size();
    file.data_bytes = opened.file.bytes() - header.size();
    file.header_crc32c = Crc32c(header.data(), header.size());
    // The header of a file that was trained on is the same.
    file.modified_ns = opened.file.modified_ns();
    opened.file.AddTo(digester);
    digester.Add(Digest(header));
    std::vector<PlainTensor>& tensors = opened.content.header.tensors;
    for (uint32_t i = 0; i < tensors.size(); ++i) {
      const std::string tensor = tensors[i].name;
      const auto [at, fresh] = tensors_.try_emplace(tensor, Found{std::move(tensors[i]), number, i});
      if (!fresh) {
        return Bad(
            absl::StrCat("'", tensor, "' stands in both ", manifest_.files[at->second.file].name, " and ", file.name),
            file.name);
      }
    }
    const auto& metadata = opened.content.header.metadata;
    metadata_.insert(metadata_.end(), metadata.begin(), metadata.end());
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

  absl::Status FindTies(Digester& digester) {
    CAIRN_ASSIGN_OR_RETURN(const std::string config, ReadConfig());
    std::set<std::string, std::less<>> stored;
    for (const auto& [name, found] : tensors_) stored.insert(name);
    for (const auto& [name, target] : FindTiedNames({stored, metadata_, config})) {
      manifest_.aliases.emplace_back(name, target);
      digester.Add(name).Add(target);
    }
    return absl::OkStatus();
  }

  // Returns what config.json says; nothing if there is none, or none of a sensible length.
  absl::StatusOr<std::string> ReadConfig() const {
    const auto file = ForeignFile::Open(absl::StrCat(directory_, "/config.json"));
    if (HasReason(file.status(), Reason::kFileMissing)) return std::string();
    if (!file.ok()) return file.status();
    if (file->bytes() > kMaxConfigBytes) return std::string();
    return file->Read(0, file->bytes());
  }

  const std::string directory_;
  std::optional<PlainIndex> index_;
  std::vector<std::string> files_;
  std::vector<OpenedFile> opened_;  // in the order of `files_`
  std::map<std::string, Found> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;  // of all files
  Manifest manifest_;
};

}  // namespace

absl::StatusOr<Manifest> ReadSafetensorsDirectory(const std::string& directory) { return Importer(directory).Read(); }

}  // namespace cairn
