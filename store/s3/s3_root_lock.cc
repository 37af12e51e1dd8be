#include "store/s3/s3_root_lock.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/s3/s3_nested_root.h"

namespace cairn {
namespace {

constexpr char kAddressPath[] = ".cairn/address";
// The first word of a record says what the root may hold.
constexpr char kFormat[] = "epoch/2";
// Its last word, once the root was given back.
constexpr std::string_view kGivenBack = "given-back";
constexpr uint64_t kMaxBytes = 4096;
constexpr absl::Duration kRetry = absl::Milliseconds(500);

// All paths have the same length, so the store lists them in the order of their epochs.
std::string EpochPath(uint64_t epoch) { return absl::StrFormat("%s%020u", kS3Epochs, epoch); }

std::string HostName() {
  char name[128] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

std::vector<std::string> WordsOf(const std::string& text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
}

// Returns the highest epoch that was taken, at least `from`; 0 if there is none.
absl::StatusOr<uint64_t> NewestEpoch(S3Client& client, uint64_t from) {
  const std::string& prefix = client.address().prefix;
  CAIRN_ASSIGN_OR_RETURN(const auto listed, client.List(absl::StrCat(prefix, kS3Epochs), /*by_directory=*/false,
                                                        from == 0 ? "" : absl::StrCat(prefix, EpochPath(from - 1))));
  uint64_t newest = 0;
  for (const S3Client::Listed& one : listed) {
    uint64_t epoch = 0;
    if (absl::SimpleAtoi(one.name.substr(prefix.size() + sizeof(kS3Epochs) - 1), &epoch))
      newest = std::max(newest, epoch);
  }
  return newest;
}

// Removes the records of epochs below `epoch`. They mean nothing any more, so it does not matter if some stay.
void RemoveOlder(S3Client& client, uint64_t epoch) {
  const std::string& prefix = client.address().prefix;
  const auto listed = client.List(absl::StrCat(prefix, kS3Epochs), /*by_directory=*/false);
  if (!listed.ok()) return;
  std::vector<std::string> older;
  for (const S3Client::Listed& one : *listed) {
    if (one.name < absl::StrCat(prefix, EpochPath(epoch))) older.push_back(one.name);
  }
  client.Delete(older).IgnoreError();
}

std::string Record(uint64_t epoch, bool held) {
  return absl::StrFormat("%s %u %d %s%s\n", kFormat, epoch, getpid(), HostName(), held ? "" : " given-back");
}

struct Holding {
  RootHolder holder;
  bool alive = false;  // the record was written not long ago, and the root was not given back
  absl::Time written;
};

// Reads the record of an epoch, by one request, or two while somebody holds it.
absl::StatusOr<Holding> ReadEpoch(Storage& storage, S3Client& client, uint64_t epoch) {
  const std::string file = storage.FullPath(EpochPath(epoch));
  CAIRN_ASSIGN_OR_RETURN(const S3Content record,
                         client.Fetch(absl::StrCat(client.address().prefix, EpochPath(epoch)), kMaxBytes));
  const std::vector<std::string> words = WordsOf(record.bytes);
  if (!words.empty() && words[0] != kFormat && words[0].starts_with("epoch/")) {
    return MakeError(Reason::kFormatTooNew,
                     absl::StrCat(storage.root(), " holds what a later version of Cairn has put there (", file,
                                  " begins with ", words[0], ")"),
                     {{"file", file}, {"root", storage.root()}});
  }
  const S3Object& object = record.object;
  Holding holding = {
      {"an unknown process", "", ""}, object.now - object.modified <= S3RootLock::kLease, object.modified};
  if (words.size() < 4) return holding;
  holding.alive = holding.alive && (words.size() < 5 || words[4] != kGivenBack);
  holding.holder = {absl::StrCat("process ", words[2], " on ", words[3], " (epoch ", epoch, ")"), words[3], ""};
  if (!holding.alive) return holding;
  const std::vector<std::string> told = WordsOf(storage.Read(kAddressPath, kMaxBytes).value_or(""));
  if (told.size() == 2 && told[0] == absl::StrCat(epoch)) holding.holder.address = told[1];
  return holding;
}

absl::Status InUse(const std::string& root, const RootHolder& holder) {
  ErrorMetadata metadata = {{"root", root}, {"holder", holder.text}};
  std::string where;
  if (!holder.address.empty()) {
    where = absl::StrCat(" at ", holder.address);
    metadata.emplace_back("address", holder.address);
  }
  return MakeError(Reason::kRootInUse, absl::StrCat(root, " is served by ", holder.text, where), metadata);
}

}  // namespace

absl::StatusOr<std::unique_ptr<S3RootLock>> S3RootLock::Acquire(Storage& storage, S3Client& client,
                                                                absl::Duration patience, const Clock& clock,
                                                                const Storage::Waiting& waiting) {
  CAIRN_RETURN_IF_ERROR(CheckNotWithin(client));
  const absl::Time deadline = clock.SteadyNow() + patience;
  bool told = false;
  for (;;) {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t newest, NewestEpoch(client, 0));
    if (newest != 0) {
      const auto holding = ReadEpoch(storage, client, newest);
      // Whoever took the next epoch has removed it meanwhile.
      if (HasReason(holding.status(), Reason::kFileMissing)) continue;
      CAIRN_RETURN_IF_ERROR(holding.status());
      if (holding->alive) {
        if (clock.SteadyNow() >= deadline) return InUse(storage.root(), holding->holder);
        if (!told) waiting(holding->holder.text);
        told = true;
        std::this_thread::sleep_for(absl::ToChronoMilliseconds(kRetry));
        continue;
      }
    }
    if (newest == 0) CAIRN_RETURN_IF_ERROR(CheckNotAround(client));
    const uint64_t epoch = newest + 1;
    CAIRN_ASSIGN_OR_RETURN(const Put put, storage.PutIfAbsent(EpochPath(epoch), Record(epoch, /*held=*/true)));
    if (put == Put::kExists) continue;  // another one was faster
    CAIRN_ASSIGN_OR_RETURN(const Holding own, ReadEpoch(storage, client, epoch));
    std::unique_ptr<S3RootLock> lock(new S3RootLock(storage, client, epoch, own.written));
    // Records below the newest one are removed, so a slow process could have taken a number anew.
    CAIRN_RETURN_IF_ERROR(lock->Check());
    CAIRN_ASSIGN_OR_RETURN(lock->renewal_, StartThread("to hold the root", [lock = lock.get()] { lock->Renew(); }));
    RemoveOlder(client, epoch);
    return lock;
  }
}

absl::StatusOr<std::optional<RootHolder>> S3RootLock::HolderOf(Storage& storage, S3Client& client) {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t newest, NewestEpoch(client, 0));
  if (newest == 0) return std::nullopt;
  const auto holding = ReadEpoch(storage, client, newest);
  if (HasReason(holding.status(), Reason::kFileMissing)) return std::nullopt;
  CAIRN_RETURN_IF_ERROR(holding.status());
  if (!holding->alive) return std::nullopt;
  return holding->holder;
}

S3RootLock::~S3RootLock() {
  if (!renewal_.joinable()) return;
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  // A store that does not answer must not hold the process.
  client_.SetHurried(true);
  renewal_.join();
  // Else the next one would wait for the lease to end. Nothing is lost if this fails.
  MutexLock lock(mutex_);
  if (renewed_) WriteRecord(/*held=*/false);
  client_.SetHurried(false);
}

bool S3RootLock::WriteRecord(bool held) {
  // A record of a lost epoch is gone, and stays so.
  return Look().ok() && storage_.PutReplacing(EpochPath(epoch_), Record(epoch_, held)).ok();
}

void S3RootLock::Renew() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!ending_) changed_.WaitFor(mutex_, kRenewal);
      if (ending_) return;
    }
    const bool renewed = WriteRecord(/*held=*/true);
    MutexLock lock(mutex_);
    renewed_ = renewed;
  }
}

absl::Status S3RootLock::TellAddress(const std::string& address) const {
  return storage_.PutReplacing(kAddressPath, absl::StrCat(epoch_, " ", address, "\n"));
}

absl::Status S3RootLock::Look() const {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t newest, NewestEpoch(client_, epoch_));
  if (newest == epoch_) return absl::OkStatus();
  const std::string holder =
      newest == 0 ? ""
                  : ReadEpoch(storage_, client_, newest).value_or(Holding{{"an unknown process", "", ""}}).holder.text;
  return MakeError(
      Reason::kRootInUse,
      newest == 0 ? absl::StrCat(storage_.FullPath(EpochPath(epoch_)), " is gone: nobody knows who serves the root")
                  : absl::StrCat(storage_.root(), " is served by ", holder,
                                 " now: this process did not write its lease for ", absl::FormatDuration(kLease)),
      {{"root", storage_.root()}, {"holder", holder}});
}

}  // namespace cairn
