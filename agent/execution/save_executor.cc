#include "agent/execution/save_executor.h"

#include <fcntl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/transport/slab_byte_server.h"
#include "common/base/clock.h"
#include "common/process/log.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

double Seconds(absl::Time since) { return absl::ToDoubleSeconds(Clock::Real().SteadyNow() - since); }

}  // namespace

SaveExecutor::SaveExecutor(ExecutorContext context) : context_(context) {
  if (const uint64_t bandwidth = context_.options.write_bandwidth; bandwidth > 0) {
    pace_ = std::make_unique<WritePace>(bandwidth, Clock::Real());
  }
}

SaveExecutor::~SaveExecutor() { Stop(); }

void SaveExecutor::MakeSlab(uint64_t bytes) {
  queue_.Post([this, bytes] { MakeSlabNow(bytes); });
}

void SaveExecutor::StopWrite(uint64_t save) {
  MutexLock lock(mutex_);
  if (writing_ != nullptr && writing_->save == save) writing_->Stop();
}

void SaveExecutor::Tick() {
  std::shared_ptr<WriterRun> writing;
  {
    MutexLock lock(mutex_);
    writing = writing_;
  }
  if (writing == nullptr) return;
  const std::vector<uint32_t> waiting_for = writing->moves->waiting_for();
  context_.host.Do([&](Session& session, absl::Time) {
    session.saves().OnWriteProgress(writing->save, writing->bytes_done, waiting_for);
  });
}

void SaveExecutor::Cancel() {
  MutexLock lock(mutex_);
  if (writing_ != nullptr) writing_->Stop();
}

void SaveExecutor::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  Cancel();
  queue_.Stop();
  if (writer_.joinable()) writer_.join();
}

std::shared_ptr<SlabImage> SaveExecutor::ImageOf(const KeptSavePtr& kept) {
  MutexLock lock(mutex_);
  if (kept == nullptr || slab_ == nullptr || slab_id_ != kept->slab) return nullptr;
  std::erase_if(images_, [](const std::weak_ptr<SlabImage>& image) { return image.expired(); });
  auto image = std::make_shared<SlabImage>(slab_, kept);
  images_.push_back(image);
  return image;
}

std::shared_ptr<SharedMemory> SaveExecutor::SlabOf(uint64_t id) {
  MutexLock lock(mutex_);
  return slab_id_ == id ? slab_ : nullptr;
}

void SaveExecutor::EndImages() {
  std::vector<std::weak_ptr<SlabImage>> images;
  {
    MutexLock lock(mutex_);
    images.swap(images_);
  }
  for (const std::weak_ptr<SlabImage>& image : images) {
    if (const auto used = image.lock(); used != nullptr) used->GiveUp();
  }
}

void SaveExecutor::GiveUpSlab() {
  Log(LogLevel::kInfo, "slab_given_up", {{"why", "a save begins while a load copies from it"}});
  EndImages();
  context_.host.Do([](Session& session, absl::Time) { session.OnSlabGivenUp(); });
}

void SaveExecutor::MakeSlabNow(uint64_t bytes) {
  const absl::Time begin = Clock::Real().SteadyNow();
  EndImages();  // their pages are given back
  {
    MutexLock lock(mutex_);
    if (slab_ != nullptr) {
      context_.transfer.descriptors.Withdraw(slab_id_);
      // A trainer may hold its mapping for a while: its pages are given back all the same. Those of a slab that was
      // lent cannot be (it is sealed): they go when the trainer maps the new one in its place, or ends.
      (void)fallocate(slab_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(slab_->bytes()));
      slab_.reset();
    }
  }
  const char* huge_pages = "no";
  const auto make = [&]() -> absl::StatusOr<SlabDescription> {
    CAIRN_ASSIGN_OR_RETURN(auto slab, context_.transfer.pool.Make("cairn-slab", bytes));
    CAIRN_ASSIGN_OR_RETURN(const uint64_t id, context_.transfer.descriptors.Offer(slab, false));
    huge_pages = slab->huge_pages();
    MutexLock lock(mutex_);
    slab_ = std::move(slab);
    slab_id_ = id;
    return SlabDescription{id, slab_->bytes()};
  };
  auto made = WithMemory("for the staging buffer", make);
  if (made.ok()) {
    Log(LogLevel::kInfo, "slab_made",
        {{"bytes", made->bytes}, {"seconds", Seconds(begin)}, {"huge_pages", huge_pages}});
  } else {
    Log(LogLevel::kError, "slab_refused", {{"bytes", bytes}, {"error", made.status()}});
  }
  context_.host.Do([&](Session& session, absl::Time) { session.OnSlab(std::move(made)); });
}

absl::Status SaveExecutor::Lend(const action::StartWrite& start, const std::shared_ptr<SharedMemory>& slab) {
  EndLending(start.save);  // of an earlier attempt
  if (start.target->moved_out.empty()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const uint64_t id, context_.transfer.descriptors.Offer(slab, true));
  const auto lender =
      std::make_shared<SlabByteServer>(RoundBuffer{0, slab->bytes(), slab}, *start.staged, *start.target);
  lender->MarkStaged(id);
  const TransferService::Key key = {start.target->plan_digest, 0, start.step, start.attempt};
  {
    MutexLock lock(mutex_);
    lent_.push_back({start.save, key, id});
  }
  context_.transfer.transfers.Add(key, start.order.transfer_token(), lender);
  return absl::OkStatus();
}

void SaveExecutor::EndLending(uint64_t save) {
  std::vector<Lent> ended;
  {
    MutexLock lock(mutex_);
    for (const Lent& lent : lent_) {
      if (lent.save == save) ended.push_back(lent);
    }
    std::erase_if(lent_, [&](const Lent& lent) { return lent.save == save; });
  }
  for (const Lent& lent : ended) {
    context_.transfer.transfers.Remove(lent.key);
    context_.transfer.descriptors.Withdraw(lent.descriptor_id);
  }
}

void SaveExecutor::StartWrite(const action::StartWrite& start, std::shared_ptr<ControlPage> page) {
  if (writer_.joinable()) writer_.join();  // the session has heard of its end
  auto run = std::make_shared<WriterRun>();
  run->save = start.save;
  if (start.staging == 0) {
    run->staging = std::make_unique<StagingProgress>(start.object_bytes);
  } else {
    run->staging = std::make_unique<StagingProgress>([page = std::move(page), staging = start.staging]() -> uint64_t {
      return page == nullptr ? 0 : page->StagedBytes(staging);
    });
  }
  std::shared_ptr<SharedMemory> slab;
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    slab = slab_;
    run->moves = context_.exchange.OfSave(start, slab);
    writing_ = run;
  }
  auto writer =
      StartThread(absl::StrCat("to write step ", start.step), [this, start, run, slab] { Write(start, run, slab); });
  if (writer.ok()) {
    writer_ = *std::move(writer);
    DecideMoves(start.save, start.order.exchange());
  } else {
    EndWrite(start, *run, writer.status(), 0);
  }
}

void SaveExecutor::EndStaging(uint64_t save, const std::vector<uint64_t>& object_bytes) {
  MutexLock lock(mutex_);
  if (writing_ != nullptr && writing_->save == save) writing_->staging->End(object_bytes);
}

// Not on the thread that executes actions: it may make memory.
void SaveExecutor::DecideMoves(uint64_t save, const v1::Exchange& exchange) {
  queue_.Post([this, save, exchange] {
    std::shared_ptr<WriterRun> writing;
    {
      MutexLock lock(mutex_);
      writing = writing_;
    }
    if (writing != nullptr && writing->save == save) writing->moves->Decide(exchange);
  });
}

void SaveExecutor::Write(const action::StartWrite& start, const std::shared_ptr<WriterRun>& run,
                         const std::shared_ptr<SharedMemory>& slab) {
  const absl::Time begin = Clock::Real().SteadyNow();
  BinWriteJob job = {start.directory, start.order.attempt_nonce(), start.staged,
                     start.target,    run->staging.get(),          slab->data(),
                     nullptr};
  job.job = context_.options.job;
  job.step = start.step;
  job.attempt = start.attempt;
  job.summarize = start.order.summarize();
  job.fetch_moved = [&](size_t index, uint64_t offset, uint64_t bytes, char* to) {
    return run->moves->Fetch(index, offset, bytes, to);
  };
  const BinWriterOptions options = {.io_threads = context_.io_threads(), .pace = pace_.get()};
  absl::StatusOr<BinWriteOutcome> outcome =
      WithMemory(absl::StrCat("to write step ", start.step), [&]() -> absl::StatusOr<BinWriteOutcome> {
        CAIRN_RETURN_IF_ERROR(Lend(start, slab));
        CAIRN_RETURN_IF_ERROR(context_.root.Check());
        return WriteBins(context_.storage, job, options, run->stop, run->bytes_done);
      });
  if (!outcome.ok()) run->moves->Stop();  // nobody need wait for what this rank sends
  run->moves->AwaitEnd();
  if (HasReason(outcome.status(), Reason::kRootMismatch)) {
    outcome = Annotate(outcome.status(), absl::StrCat("on ", context_.options.node), {{"node", context_.options.node}});
  }
  EndWrite(start, *run, std::move(outcome), Seconds(begin));
}

void SaveExecutor::EndWrite(const action::StartWrite& start, const WriterRun& run,
                            absl::StatusOr<BinWriteOutcome> outcome, double seconds) {
  const std::string transport = run.moves->transport();
  if (outcome.ok()) {
    context_.counters.Wrote(start.target->file_bytes, seconds);
    Log(LogLevel::kInfo, "written",
        {{"step", start.step},
         {"attempt", start.attempt},
         {"bytes", start.target->file_bytes},
         {"seconds", seconds},
         {"path", outcome->path},
         {"moved_in", start.target->moved_in.size()},
         {"moved_out", start.target->moved_out.size()},
         {"transport", transport}});
  } else {
    context_.counters.FailedToWrite(outcome.status());
    Log(LogLevel::kError, "write_failed",
        {{"step", start.step}, {"attempt", start.attempt}, {"error", outcome.status()}});
  }
  {
    MutexLock lock(mutex_);
    writing_.reset();
  }
  context_.host.Do([&](Session& session, absl::Time) {
    if (outcome.ok()) {
      session.saves().OnWriteEnded(start.save, std::move(outcome->result));
    } else {
      session.saves().OnWriteEnded(start.save, outcome.status());
    }
  });
}

}  // namespace cairn
