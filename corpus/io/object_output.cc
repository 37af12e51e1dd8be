#include "corpus/io/object_output.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {

absl::StatusOr<std::unique_ptr<ObjectOutput>> ObjectOutput::Create(ObjectStores& stores, const std::string& name,
                                                                   int parts) {
  CAIRN_ASSIGN_OR_RETURN(auto writer, stores.Create(name));
  return std::unique_ptr<ObjectOutput>(new ObjectOutput(name, std::move(writer), std::max(parts, 1)));
}

ObjectOutput::~ObjectOutput() {
  EndThreads();
  if (!published_) writer_->Abort();
}

void ObjectOutput::EndThreads() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    queue_.clear();
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

absl::Status ObjectOutput::TakeBuffer() {
  const int number = current_.number + 1;
  part_bytes_ = static_cast<size_t>(writer_->PartBytes(number));
  if (part_bytes_ == 0) {
    return MakeError(
        Reason::kBadRequest,
        absl::StrCat(name_, " would have more than ", bytes_, " bytes, the most that a store takes"),
        {{"file", name_}, {"next", "Write several outputs: with --split-bytes, or each from some of the inputs."}});
  }
  AlignedBuffer buffer;
  {
    MutexLock lock(mutex_);
    if (!spare_.empty()) {
      buffer = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (buffer.size() < part_bytes_) {
    CAIRN_RETURN_IF_ERROR(WithMemory(absl::StrCat("to write ", name_), [&] {
      buffer = AlignedBuffer();  // what is too small goes first
      buffer = AlignedBuffer(part_bytes_);
      return absl::OkStatus();
    }));
  }
  current_ = {number, std::move(buffer), 0};
  return absl::OkStatus();
}

absl::Status ObjectOutput::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    if (current_.bytes.size() == 0) CAIRN_RETURN_IF_ERROR(TakeBuffer());
    const size_t taken = std::min(bytes.size(), part_bytes_ - current_.size);
    std::memcpy(current_.bytes.data() + current_.size, bytes.data(), taken);
    current_.size += taken;
    bytes_ += taken;
    bytes.remove_prefix(taken);
    if (current_.size == part_bytes_) CAIRN_RETURN_IF_ERROR(Submit());
  }
  return absl::OkStatus();
}

absl::Status ObjectOutput::Submit() {
  const int number = current_.number;
  Part part = std::exchange(current_, {number, AlignedBuffer(), 0});
  mutex_.Lock();
  while (under_way_ >= most_parts_ && error_.ok()) changed_.Wait(mutex_);
  if (error_.ok()) {
    ++under_way_;
    if (static_cast<int>(threads_.size()) < under_way_) {
      auto thread = StartThread("to send an output", [this] { Loop(); });
      if (thread.ok()) threads_.push_back(*std::move(thread));
    }
    if (threads_.empty()) {
      Send(std::move(part));  // the system refuses threads
    } else {
      queue_.push_back(std::move(part));
      changed_.NotifyAll();
    }
  }
  absl::Status status = error_;
  mutex_.Unlock();
  return status;
}

void ObjectOutput::Send(Part part) {
  mutex_.Unlock();
  absl::Status status = WithMemory(absl::StrCat("to write ", name_),
                                   [&] { return writer_->Send(part.number, {part.bytes.data(), part.size}); });
  mutex_.Lock();
  if (error_.ok()) error_ = std::move(status);
  spare_.push_back(std::move(part.bytes));
  --under_way_;
  changed_.NotifyAll();
}

void ObjectOutput::Loop() {
  mutex_.Lock();
  while (!stopping_) {
    if (queue_.empty()) {
      changed_.Wait(mutex_);
      continue;
    }
    Part part = std::move(queue_.front());
    queue_.pop_front();
    Send(std::move(part));
  }
  mutex_.Unlock();
}

absl::Status ObjectOutput::Finish() {
  if (finished_) return absl::OkStatus();
  if (current_.size > 0 && threads_.empty()) {  // all of the object is in one part
    absl::Status status = writer_->Send(current_.number, {current_.bytes.data(), current_.size});
    CAIRN_RETURN_IF_ERROR(status);
  } else if (current_.size > 0) {
    CAIRN_RETURN_IF_ERROR(Submit());
  }
  mutex_.Lock();
  while (under_way_ > 0 && error_.ok()) changed_.Wait(mutex_);
  absl::Status status = error_;
  mutex_.Unlock();
  CAIRN_RETURN_IF_ERROR(status);
  // There may be many outputs that wait for their names.
  EndThreads();
  MutexLock lock(mutex_);
  spare_.clear();
  current_ = Part();
  finished_ = true;
  return absl::OkStatus();
}

absl::Status ObjectOutput::Publish() {
  CAIRN_RETURN_IF_ERROR(Finish());
  CAIRN_RETURN_IF_ERROR(writer_->Complete());
  published_ = true;
  return absl::OkStatus();
}

}  // namespace cairn::corpus
