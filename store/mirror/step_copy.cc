#include "store/mirror/step_copy.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/digest.h"
#include "common/format/checkpoint_path.h"
#include "common/format/item_checksum.h"
#include "common/format/outcome.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/write/attempt_owner.h"
#include "store/write/attempt_store.h"

namespace cairn {
namespace {

// What a manifest says of an item of a file.
struct Expected {
  std::string name;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};

std::vector<std::vector<Expected>> ItemsByFile(const Manifest& manifest) {
  std::vector<std::vector<Expected>> items(manifest.files.size());
  for (const ManifestShard& shard : manifest.shards) {
    items[shard.file].push_back({manifest.tensors[shard.tensor].name, shard.file_offset, shard.bytes, shard.crc32c});
  }
  for (const ManifestObject& object : manifest.objects) {
    items[object.file].push_back({object.name, object.file_offset, object.slot_bytes, object.crc32c});
  }
  for (auto& file : items) {
    // An item without bytes shares its place with the next one.
    std::sort(file.begin(), file.end(), [](const Expected& a, const Expected& b) {
      return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
    });
  }
  return items;
}

// A number that every copy of this record has.
uint64_t NonceOf(std::string_view record) {
  uint64_t nonce = 0;
  std::memcpy(&nonce, Digest(record).data(), sizeof(nonce));
  return nonce;
}

// What the target says is no fault of the step, whatever its reason is.
absl::Status AtTarget(absl::Status status) {
  if (!IsStepFault(status)) return status;
  ErrorMetadata metadata;
  for (const auto& [key, value] : MetadataOf(status)) metadata.emplace_back(key, value);
  return MakeError(Reason::kStorageError, absl::StrCat("at the mirror: ", status.message()), metadata);
}

class StepCopy {
 public:
  StepCopy(Storage& from, const Manifest& manifest, const CopyTarget& to, const std::atomic<bool>& stop,
           std::atomic<uint64_t>& bytes_done)
      : from_(from),
        manifest_(manifest),
        to_(to),
        directory_(AttemptDirectory(manifest.job, manifest.step, manifest.attempt)),
        items_(ItemsByFile(manifest)),
        stop_(stop),
        bytes_done_(bytes_done),
        threads_(std::clamp(std::max(from.CallsAtOnce(), to.storage.CallsAtOnce()), 2, kMostPartsAtOnce)) {}

  // Makes the attempt's directory, or takes the one that an earlier copy of the same record has made.
  absl::Status Claim(uint64_t nonce) {
    const std::string what = absl::StrCat("copy of ", from_.root(), "/", directory_);
    CAIRN_RETURN_IF_ERROR(to_.lock.Check());
    CAIRN_ASSIGN_OR_RETURN(const Put made, MakeAttemptDirectory(to_.storage, directory_, nonce, what));
    if (made == Put::kCreated) return absl::OkStatus();
    const absl::Status owned = CheckAttemptOwner(to_.storage, directory_, nonce);
    if (owned.ok()) return to_.storage.RemoveUnfinished({directory_}, to_.lock.began());
    if (!HasReason(owned, Reason::kRootMismatch)) return owned;
    // It has no record, and nobody else holds the mirror: a copy of another record has left it.
    CAIRN_RETURN_IF_ERROR(to_.lock.Check());
    CAIRN_RETURN_IF_ERROR(to_.storage.RemoveAll(directory_));
    return MakeAttemptDirectory(to_.storage, directory_, nonce, what).status();
  }

  // Returns whether all files are there with their lengths.
  absl::StatusOr<bool> HasAllFiles() {
    const auto standing = to_.storage.SizesOf(directory_, Names());
    if (HasReason(standing.status(), Reason::kFileMissing)) return false;  // the directory
    CAIRN_RETURN_IF_ERROR(AtTarget(standing.status()));
    for (size_t i = 0; i < standing->size(); ++i) {
      if ((*standing)[i] != manifest_.files[i].bytes()) return false;
    }
    return true;
  }

  absl::Status CopyFiles() {
    const std::vector<std::string> names = Names();
    CAIRN_ASSIGN_OR_RETURN(const auto standing, to_.storage.SizesOf(directory_, names));
    const int at_once = std::clamp(static_cast<int>(manifest_.files.size()), 1, threads_);
    // If there are fewer files than threads, several read parts of one file.
    const int threads_each = threads_ / at_once;
    return ForEachOnThreads("to copy a step to the mirror", names.size(), at_once, [&](size_t i, int) {
      return CopyFile(i, absl::StrCat(directory_, "/", names[i]), standing[i].has_value(), threads_each);
    });
  }

 private:
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const ManifestFile& file : manifest_.files) names.push_back(absl::StrCat(file.name, ".safetensors"));
    return names;
  }

  absl::Status Stopped() const {
    return stop_ ? MakeError(Reason::kInterrupted, "the copy was stopped") : absl::OkStatus();
  }

  absl::Status CopyFile(size_t index, const std::string& path, bool stands, int threads) {
    if (stands) {
      const absl::Status whole = CheckCopy(index, path, threads);
      if (whole.ok()) return whole;
      CAIRN_RETURN_IF_ERROR(Stopped());
      if (!IsStepFault(whole)) return whole;
      CAIRN_RETURN_IF_ERROR(to_.lock.Check());
      CAIRN_RETURN_IF_ERROR(AtTarget(to_.storage.RemoveAll(path)));
    }
    const ManifestFile& file = manifest_.files[index];
    CAIRN_ASSIGN_OR_RETURN(const auto source,
                           from_.Open(path, {.cache = Cache::kSpare, .bytes = file.bytes(), .stop = &stop_}));
    auto writer = to_.storage.Create(path, file.header_bytes, file.data_bytes);
    CAIRN_RETURN_IF_ERROR(AtTarget(writer.status()));
    (*writer)->StopWhen(stop_);
    std::string header;
    absl::Status copied = Read(index, *source, writer->get(), threads, header);
    if (copied.ok()) return AtTarget((*writer)->Finish(header));
    // What cannot be removed now goes with the directory, or when the attempt is copied again.
    (*writer)->Remove().IgnoreError();
    return copied;
  }

  // Reads a file that an earlier copy has finished. An error that is a fault of a step (IsStepFault) says that the file
  // is not whole.
  absl::Status CheckCopy(size_t index, const std::string& path, int threads) {
    const uint64_t before = manifest_.files[index].bytes();
    const auto file = to_.storage.Open(path, {.cache = Cache::kSpare, .bytes = before, .stop = &stop_});
    CAIRN_RETURN_IF_ERROR(file.status());
    std::string header;
    return Read(index, **file, nullptr, threads, header);
  }

  // Reads all of a file, writes its data if there is a writer, and compares its checksums with those of the manifest.
  // If that succeeds, `header` is the file's header.
  absl::Status Read(size_t index, StoredFile& source, FileWriter* writer, int threads, std::string& header) {
    const ManifestFile& file = manifest_.files[index];
    const std::vector<Expected>& items = items_[index];
    const std::string& path = source.path();
    CAIRN_ASSIGN_OR_RETURN(header, ReadPart(source, 0, file.header_bytes));
    if (Crc32c(header.data(), header.size()) != file.header_crc32c) return Damaged(path, 0, "its header");
    std::vector<uint64_t> begins;
    for (const Expected& item : items) begins.push_back(item.offset - file.header_bytes);
    begins.push_back(file.data_bytes);
    const ItemChecksummer checksummer(std::move(begins));
    const size_t parts = (file.data_bytes + kCopyPartBytes - 1) / kCopyPartBytes;
    std::vector<std::vector<ItemChecksummer::Fragment>> fragments(parts);
    std::vector<AlignedBuffer> buffers(static_cast<size_t>(threads));
    std::atomic<uint64_t> read = 0;
    const absl::Status done = ForEachOnThreads("to copy a file", parts, threads, [&](size_t part, int thread) {
      CAIRN_RETURN_IF_ERROR(Stopped());
      AlignedBuffer& buffer = buffers[static_cast<size_t>(thread)];
      if (buffer.size() == 0) buffer = AlignedBuffer(kCopyPartBytes);
      const uint64_t begin = part * kCopyPartBytes;
      const uint64_t size = std::min(kCopyPartBytes, file.data_bytes - begin);
      CAIRN_RETURN_IF_ERROR(source.Read(file.header_bytes + begin, size, buffer.data(), /*in_place=*/true));
      fragments[part] = checksummer.Touch(begin, buffer.data(), size);
      if (writer != nullptr) {
        const uint64_t padded = RoundUpToIo(size);
        std::memset(buffer.data() + size, 0, padded - size);
        CAIRN_RETURN_IF_ERROR(AtTarget(writer->Write(file.header_bytes + begin, buffer.data(), padded)));
      }
      read += size;
      bytes_done_ += size;
      return absl::OkStatus();
    });
    const absl::Status checked = done.ok() ? Compare(path, items, checksummer.Combine(fragments)) : done;
    // Bytes that are read again count once.
    if (!checked.ok()) bytes_done_ -= read;
    if (checked.ok()) bytes_done_ += file.header_bytes;
    return checked;
  }

  static absl::Status Compare(const std::string& path, const std::vector<Expected>& items,
                              const std::vector<ItemChecksums>& found) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (found[i].crc32c != items[i].crc32c) return Damaged(path, items[i].offset, items[i].name);
    }
    return absl::OkStatus();
  }

  static absl::Status Damaged(const std::string& path, uint64_t offset, const std::string& what) {
    return MakeError(Reason::kChecksumMismatch,
                     absl::StrCat(path, " at ", offset, ": ", what, " does not have the checksum that was written"),
                     {{"file", path}, {"offset", absl::StrCat(offset)}});
  }

  Storage& from_;
  const Manifest& manifest_;
  const CopyTarget& to_;
  const std::string directory_;
  const std::vector<std::vector<Expected>> items_;  // by file
  const std::atomic<bool>& stop_;
  std::atomic<uint64_t>& bytes_done_;
  const int threads_;
};

absl::Status Conflict(const CopyTarget& to, const Manifest& manifest) {
  const std::string file = to.storage.FullPath(OutcomePath(manifest.job, manifest.step, manifest.attempt));
  return MakeError(
      Reason::kStepCommitted, absl::StrCat(file, " holds another record than the root has of this attempt"),
      {{"job", manifest.job},
       {"step", absl::StrCat(manifest.step)},
       {"file", file},
       {"next",
        "Use a mirror that belongs to this root alone, or delete the step there with a coordinator of its own."}});
}

// Checks that the attempt of `manifest` is ended there by the record `bytes`, and makes that durable.
absl::Status CheckRecord(const Manifest& manifest, const std::string& bytes, const CopyTarget& to) {
  const StoredAttempt there = to.checkpoints.ReadAttempt(manifest.job, manifest.step, manifest.attempt);
  if (!there.stands()) return Conflict(to, manifest);
  const auto standing = to.storage.Read(OutcomePath(manifest.job, manifest.step, manifest.attempt), kMaxOutcomeBytes);
  CAIRN_RETURN_IF_ERROR(AtTarget(standing.status()));
  if (*standing != bytes) return Conflict(to, manifest);
  return AtTarget(to.storage.Sync(StepDirectory(manifest.job, manifest.step)));
}

}  // namespace

bool IsStepFault(const absl::Status& status) {
  return IsProvenDamage(status) || HasReason(status, Reason::kChecksumMismatch) ||
         HasReason(status, Reason::kBadForeignFile);
}

absl::Status CopyStep(CheckpointStore& from, const CheckpointStore::ManifestBytes& record, const CopyTarget& to,
                      const std::atomic<bool>& stop, std::atomic<uint64_t>& bytes_done) {
  CAIRN_ASSIGN_OR_RETURN(const Outcome outcome, DecodeOutcome(*record.bytes));
  const Manifest* const manifest = std::get_if<Manifest>(&outcome);
  if (manifest == nullptr) return MakeError(Reason::kManifestCorrupt, "the record is no manifest");
  const uint64_t nonce = NonceOf(*record.bytes);
  bytes_done = 0;
  CAIRN_RETURN_IF_ERROR(to.lock.Check());
  // Without a record in its place, nobody relies on what is in the directory.
  const StoredAttempt there = to.checkpoints.ReadAttempt(manifest->job, manifest->step, manifest->attempt);
  if (there.damaged) return AtTarget(there.error);
  StepCopy copy(from.storage(), *manifest, to, stop, bytes_done);
  if (!there.unfinished) {
    CAIRN_RETURN_IF_ERROR(CheckRecord(*manifest, *record.bytes, to));
    CAIRN_ASSIGN_OR_RETURN(const bool whole, copy.HasAllFiles());
    if (whole) return absl::OkStatus();
  }
  CAIRN_RETURN_IF_ERROR(AtTarget(copy.Claim(nonce)));
  CAIRN_RETURN_IF_ERROR(WithMemory("to copy a step to the mirror", [&] { return copy.CopyFiles(); }));
  if (!there.unfinished) return CheckRecord(*manifest, *record.bytes, to);

  auto bins = std::make_shared<std::vector<BinFile>>();
  for (const ManifestFile& file : manifest->files) {
    bins->push_back({absl::StrCat(file.name, ".safetensors"), file.rank, file.bytes()});
  }
  AttemptStore attempts(to.storage, to.checkpoints, to.clock, to.lock);
  const PutAnswer answer = attempts.Put(manifest->job, {.step = manifest->step,
                                                        .attempt = manifest->attempt,
                                                        .nonce = nonce,
                                                        .manifest = record.bytes,
                                                        .bins = std::move(bins),
                                                        .error = absl::OkStatus(),
                                                        .request_id = manifest->request_id});
  CAIRN_RETURN_IF_ERROR(AtTarget(answer.standing.status()));
  return CheckRecord(*manifest, *record.bytes, to);
}

}  // namespace cairn
