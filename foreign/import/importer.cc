#include "foreign/import/importer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/base/shell_word.h"
#include "common/base/version.h"
#include "common/format/checkpoint_path.h"
#include "common/format/import_writer.h"
#include "common/format/outcome.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/import/bin_stream.h"
#include "foreign/import/import_plan.h"
#include "foreign/read/foreign_directory.h"
#include "foreign/tensors/background_task.h"
#include "foreign/tensors/tensor_reader.h"
#include "foreign/tensors/window_size.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/root_lock.h"
#include "store/write/attempt_store.h"

namespace cairn {
namespace {

// Writes the bins of an attempt through two windows of memory: while one is written, the other one is filled.
class BinsWriter {
 public:
  BinsWriter(Storage& storage, const Manifest& source, const ImportPlan& plan, ItemReader& objects,
             const ImportOptions& options)
      : storage_(storage),
        source_(source),
        plan_(plan),
        objects_(objects),
        options_(options),
        reader_(nullptr, source, {.threads = options.threads, .interrupted = options.interrupted}) {}

  absl::StatusOr<std::vector<RankResult>> Run(const std::string& directory, const BinIdentity& identity) {
    CAIRN_RETURN_IF_ERROR(WithMemory("for the windows of an import; lower --memory", [&] {
      const uint64_t bytes = BytesOfWindow();
      // Besides its own bytes a window takes those that the last one leaves behind its last whole piece.
      window_bytes_ = bytes + BinStream::kPieceBytes;
      for (AlignedBuffer& window : windows_) window = AlignedBuffer(window_bytes_ + kIoAlignment);
      return absl::OkStatus();
    }));
    std::vector<RankResult> results;
    for (size_t rank = 0; rank < plan_.ranks.size(); ++rank) {
      BinIdentity of_rank = identity;
      of_rank.rank = static_cast<int>(rank);
      CAIRN_ASSIGN_OR_RETURN(v1::WriteResult result, WriteRank(directory, of_rank, plan_.ranks[rank]));
      results.push_back({of_rank.rank, std::move(result)});
    }
    return results;
  }

 private:
  absl::StatusOr<v1::WriteResult> WriteRank(const std::string& directory, const BinIdentity& identity,
                                            const ImportRank& rank) {
    rank_ = &rank;
    v1::WriteResult result;
    bool first = identity.rank == 0;
    for (const v1::PlannedFile& file : rank.part.files()) {
      BinDescription bin{directory, file.name(), file.header_bytes(), file.data_bytes(), {}, identity, {}};
      for (const uint32_t item : file.items()) bin.items.push_back(rank.items[item]);
      if (std::exchange(first, false)) bin.aliases = plan_.aliases;
      CAIRN_ASSIGN_OR_RETURN(*result.add_files(), WriteBin(std::move(bin), file));
    }
    return result;
  }

  // A tensor that fits into a window is not cut, because a cut tensor that is permuted would be read in several passes.
  uint64_t BytesOfWindow() const {
    WindowSizes sizes = {.memory_bytes = options_.memory_bytes,
                         .reader_bytes = reader_.buffer_bytes() + 2 * BinStream::kPieceBytes};
    for (const ImportRank& rank : plan_.ranks) {
      for (const StoredItem& item : rank.items) sizes.largest_part = std::max(sizes.largest_part, item.bytes());
      for (const v1::PlannedFile& file : rank.part.files()) {
        sizes.most_bytes = std::max(sizes.most_bytes, file.data_bytes());
      }
    }
    return WindowBytes(sizes);
  }

  absl::StatusOr<v1::FileResult> WriteBin(BinDescription description, const v1::PlannedFile& file) {
    CAIRN_ASSIGN_OR_RETURN(BinStream stream, BinStream::Create(storage_, std::move(description)));
    std::vector<uint64_t> object_bytes;
    absl::Status status = AddItems(stream, file, object_bytes);
    // A task that is under way uses the stream, so it must end first, even after an error.
    status.Update(background_.Wait());
    CAIRN_RETURN_IF_ERROR(status);
    return stream.Finish(object_bytes);
  }

  absl::Status AddItems(BinStream& stream, const v1::PlannedFile& file, std::vector<uint64_t>& object_bytes) {
    for (const uint32_t number : file.items()) {
      const StoredItem& item = rank_->items[number];
      if (filled_ > 0 && item.bytes() > window_bytes_ - filled_) CAIRN_RETURN_IF_ERROR(Flush(stream, false));
      if (item.object) {
        const size_t tensors = rank_->items.size() - rank_->objects.size();
        const ImportObject& object = plan_.objects[rank_->objects[number - tensors]];
        object_bytes.push_back(object.bytes);
        CAIRN_RETURN_IF_ERROR(AddObject(stream, object, item.bytes()));
      } else {
        CAIRN_RETURN_IF_ERROR(AddTensor(stream, plan_.tensors[number]));
      }
    }
    return Flush(stream, true);
  }

  absl::Status AddTensor(BinStream& stream, const WholeTensor& tensor) {
    const int64_t elements = *ElementCount(tensor.plain.shape);
    const auto width = static_cast<uint64_t>(BytesOf(tensor.plain.dtype));
    for (int64_t begin = 0; begin < elements;) {
      // The last element may reach into the memory behind the window.
      const auto room = static_cast<int64_t>((window_bytes_ - filled_ + width - 1) / width);
      const int64_t end = std::min(elements, begin + room);
      parts_.push_back({&tensor, begin, end, filled_});
      filled_ += static_cast<uint64_t>(end - begin) * width;
      begin = end;
      if (filled_ >= window_bytes_) CAIRN_RETURN_IF_ERROR(Flush(stream, false));
    }
    return absl::OkStatus();
  }

  absl::Status AddObject(BinStream& stream, const ImportObject& object, uint64_t slot_bytes) {
    CAIRN_ASSIGN_OR_RETURN(std::string bytes, ReadImportedObject(source_, object.source, objects_));
    if (bytes.size() != object.bytes) {
      return MakeError(Reason::kBadForeignFile,
                       absl::StrCat("'", source_.objects[object.source].name, "' has changed while it was read"));
    }
    bytes.resize(slot_bytes, '\0');
    for (uint64_t done = 0; done < slot_bytes;) {
      const uint64_t size = std::min(slot_bytes - done, window_bytes_ - filled_);
      std::memcpy(window().data() + filled_, bytes.data() + done, size);
      filled_ += size;
      done += size;
      if (filled_ >= window_bytes_) CAIRN_RETURN_IF_ERROR(Flush(stream, false));
    }
    return absl::OkStatus();
  }

  // Fills the window and begins to write it. Bytes behind its last whole piece go to the begin of the next window,
  // unless this window is the file's `last`.
  absl::Status Flush(BinStream& stream, bool last) {
    CAIRN_RETURN_IF_ERROR(reader_.Read(parts_, window().data()));
    parts_.clear();
    const uint64_t size = last ? filled_ : filled_ / BinStream::kPieceBytes * BinStream::kPieceBytes,
                   rest = filled_ - size;
    char* const bytes = window().data();
    // The previous window must be written before the rest goes into its memory.
    CAIRN_RETURN_IF_ERROR(background_.Wait());
    active_ = 1 - active_;
    std::memcpy(window().data(), bytes + size, rest);
    filled_ = rest;
    if (size == 0) return absl::OkStatus();
    return background_.Start([this, &stream, bytes, size]() -> absl::Status {
      CAIRN_RETURN_IF_ERROR(stream.Append(bytes, size));
      done_ += size;
      if (options_.progress) options_.progress(std::min<uint64_t>(done_, plan_.tensor_bytes), plan_.tensor_bytes);
      return absl::OkStatus();
    });
  }

  AlignedBuffer& window() { return windows_[active_]; }

  Storage& storage_;
  const Manifest& source_;
  const ImportPlan& plan_;
  const ImportRank* rank_ = nullptr;  // whose files are being written
  ItemReader& objects_;
  const ImportOptions& options_;
  TensorReader reader_;
  AlignedBuffer windows_[2];
  size_t active_ = 0;
  uint64_t window_bytes_ = 0;
  uint64_t filled_ = 0;
  std::vector<TensorPart> parts_;  // of the active window
  std::atomic<uint64_t> done_ = 0;
  BackgroundTask background_{"to write an import"};  // destroyed first: its task uses the rest
};

absl::Status CheckInterrupted(const ImportOptions& options) {
  if (options.interrupted && options.interrupted()) return MakeError(Reason::kInterrupted, "interrupted");
  return absl::OkStatus();
}

// None of these formats has checksums. So the only way to notice that somebody has written the source meanwhile is to
// look at its files again.
absl::Status CheckUnchanged(const std::string& directory, const Manifest& source) {
  CAIRN_ASSIGN_OR_RETURN(const Manifest now, ReadForeignDirectory(directory));
  if (now.plan_digest == source.plan_digest) return absl::OkStatus();
  return MakeError(Reason::kBadForeignFile, absl::StrCat(directory, " was written anew while it was read"),
                   {{"file", directory}});
}

class Attempt {
 public:
  Attempt(Storage& storage, AttemptStore& attempts, const std::string& job, int64_t step, Reserved reserved)
      : storage_(storage), attempts_(attempts), job_(job), step_(step), reserved_(reserved) {}

  absl::StatusOr<Manifest> Write(const Manifest& source, const ImportPlan& plan, ItemReader& objects,
                                 const std::string& directory, const Clock& clock, const ImportOptions& options) {
    BinsWriter writer(storage_, source, plan, objects, options);
    BinIdentity identity;
    identity.job = job_;
    identity.step = step_;
    identity.attempt = reserved_.attempt;
    identity.world_size = plan.ranks[0].part.world_size();
    identity.files = plan.ranks[0].part.total_files();
    CAIRN_ASSIGN_OR_RETURN(const std::vector<RankResult> results,
                           writer.Run(AttemptDirectory(job_, step_, reserved_.attempt), identity));
    CAIRN_RETURN_IF_ERROR(CheckUnchanged(directory, source));
    CAIRN_RETURN_IF_ERROR(CheckInterrupted(options));
    CommitInfo commit;
    commit.job = job_;
    commit.step = step_;
    commit.attempt = reserved_.attempt;
    commit.request_id = request_id_;
    commit.world_size = static_cast<uint32_t>(plan.ranks.size());
    commit.commit_time = clock.WallNow();
    commit.writer = absl::StrCat("cairn ", std::string(kVersion), std::string(kImportWriter));
    return plan.save.MakeManifest(results, commit);
  }

  absl::Status Commit(const Manifest& manifest) {
    auto bins = std::make_shared<std::vector<BinFile>>();
    for (const ManifestFile& file : manifest.files) {
      bins->push_back({absl::StrCat(file.name, ".safetensors"), file.rank, file.bytes()});
    }
    PutOutcome put;
    put.step = step_;
    put.attempt = reserved_.attempt;
    put.nonce = reserved_.nonce;
    put.manifest = std::make_shared<const std::string>(EncodeOutcome(manifest));
    put.bins = std::move(bins);
    put.request_id = request_id_;
    const PutAnswer outcome = attempts_.Put(job_, put);
    if (outcome.standing.ok()) {
      if (outcome.standing->stands() && outcome.standing->request_id == request_id_) return absl::OkStatus();
      return MakeError(Reason::kInternal, absl::StrCat(job_, "@", step_, " was ended by somebody else"));
    }
    in_doubt_ = outcome.in_doubt;
    if (!in_doubt_) return outcome.standing.status();
    const std::string name = absl::StrCat(job_, "@", step_);
    return Annotate(outcome.standing.status(), absl::StrCat(name, " may be committed, or become so"),
                    {{"next", absl::StrCat("See whether it is: `cairn list ", job_, " --root ",
                                           ForShell(storage_.root()), "`. If not, import it again.")}});
  }

  // Ends the attempt without a commit. If files cannot be removed now, the next attempt at the step removes them.
  void Abort(const absl::Status& error) {
    if (in_doubt_) return;
    PutOutcome put;
    put.step = step_;
    put.attempt = reserved_.attempt;
    put.error = error;
    put.request_id = request_id_;
    const PutAnswer outcome = attempts_.Put(job_, put);
    if (outcome.standing.ok() && !outcome.standing->committed) {
      attempts_.Remove(job_, step_, reserved_.attempt).IgnoreError();
    }
  }

 private:
  Storage& storage_;
  AttemptStore& attempts_;
  const std::string job_;
  const int64_t step_;
  const Reserved reserved_;
  const std::string request_id_ = absl::StrCat("import-", absl::Hex(RandomId(), absl::kZeroPad16));
  bool in_doubt_ = false;
};

}  // namespace

absl::StatusOr<ImportReport> ImportCheckpoint(Storage& storage, const std::string& directory, const std::string& job,
                                              int64_t step, const Clock& clock, const ImportOptions& options) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(job));
  CAIRN_RETURN_IF_ERROR(CheckStep(step));
  CAIRN_ASSIGN_OR_RETURN(const auto lock, storage.TakeRoot());
  CAIRN_RETURN_IF_ERROR(storage.ProbeAtomicCreate());
  CheckpointStore checkpoints(storage, lock->began());
  // An earlier import that was killed may have left files.
  checkpoints.RemoveUnfinished(job, {checkpoints.ReadStep(job, step)});
  ImportReport report;
  CAIRN_ASSIGN_OR_RETURN(const Manifest source, ReadForeignDirectory(directory, &report.left_out));
  ItemReader objects(nullptr, source);
  CAIRN_ASSIGN_OR_RETURN(const ImportPlan plan, MakeImportPlan(source, options.choice, objects));
  AttemptStore attempts(storage, checkpoints, clock, *lock);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> before, checkpoints.ReadCheckpoints(job));
  const absl::StatusOr<Reserved> reserved = attempts.Reserve(job, {.step = step});
  if (HasReason(reserved.status(), Reason::kStepCommitted)) {
    return WithMetadata(reserved.status(),
                        {{"next", absl::StrCat("Give another step by --to. `cairn delete ", job, "@", step,
                                               "` deletes this one, by a coordinator of the root and unless it is the "
                                               "last.")}});
  }
  CAIRN_RETURN_IF_ERROR(reserved.status());
  Attempt attempt(storage, attempts, job, step, *reserved);
  auto manifest = attempt.Write(source, plan, objects, directory, clock, options);
  if (manifest.ok()) manifest->lineage = WithFirstLine(LineageOf(before).Next(std::nullopt), RandomId());
  absl::Status status = manifest.ok() ? attempt.Commit(*manifest) : manifest.status();
  if (!status.ok()) {
    attempt.Abort(status);
    return status;
  }
  report.manifest = *std::move(manifest);
  for (const ImportObject& object : plan.objects) {
    if (object.opaque) report.opaque.push_back(source.objects[object.source].name);
  }
  return report;
}

}  // namespace cairn
