#include "store/s3/s3_root_lock.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/random_id.h"
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
constexpr char kGivenBack[] = "given-back";
constexpr uint64_t kMaxBytes = 4096;
// Each further one means that another process was faster.
constexpr int kMostAttempts = 100;
// Nobody counts so far; a higher number was put there by mistake.
constexpr uint64_t kMaxEpoch = uint64_t{1} << 62;

// All paths have the same length, so the store lists them in the order of their epochs.
std::string EpochPath(uint64_t epoch) { return absl::StrFormat("%s%020u", kS3Epochs, epoch); }

std::string HostName() {
  char name[128] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

std::vector<std::string> WordsOf(const std::string& text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
}

struct Newest {
  uint64_t epoch = 0;  // 0: none was taken
  std::string etag;    // of its record
};

// Returns the highest epoch that was taken, if it is at least `from`.
absl::StatusOr<Newest> NewestEpoch(S3Client& client, uint64_t from) {
  const std::string& prefix = client.address().prefix;
  CAIRN_ASSIGN_OR_RETURN(const auto listed, client.List(absl::StrCat(prefix, kS3Epochs), /*by_directory=*/false,
                                                        from == 0 ? "" : absl::StrCat(prefix, EpochPath(from - 1))));
  Newest newest;
  for (const S3Listed& one : listed) {
    uint64_t epoch = 0;
    const std::string number = one.name.substr(prefix.size() + sizeof(kS3Epochs) - 1);
    if (absl::SimpleAtoi(number, &epoch) && epoch > newest.epoch && epoch <= kMaxEpoch) newest = {epoch, one.etag};
  }
  return newest;
}

// Removes the records of epochs below `epoch`. They mean nothing any more, so it does not matter if some stay.
void RemoveOlder(S3Client& client, uint64_t epoch) {
  const std::string& prefix = client.address().prefix;
  const auto listed = client.List(absl::StrCat(prefix, kS3Epochs), /*by_directory=*/false);
  if (!listed.ok()) return;
  std::vector<std::string> older;
  for (const S3Listed& one : *listed) {
    if (one.name < absl::StrCat(prefix, EpochPath(epoch))) older.push_back(one.name);
  }
  client.Delete(older).IgnoreError();
}

// `token` tells this holder from one that took the same number, because somebody has removed the records.
std::string Record(uint64_t epoch, const std::string& token, bool held) {
  return absl::StrFormat("%s %u %d %s %s %s\n", kFormat, epoch, getpid(), HostName(), token,
                         held ? "held" : kGivenBack);
}

struct Holding {
  RootHolder holder;
  bool alive = false;  // the record was written not long ago, and the root was not given back
  std::string token;
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
  Holding holding;
  holding.holder = {"an unknown process", "", ""};
  holding.alive = object.now - object.modified <= S3RootLock::kLease;
  holding.written = object.modified;
  if (words.size() < 5) return holding;
  holding.token = words[4];
  holding.alive = holding.alive && words.back() != kGivenBack;
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

absl::StatusOr<std::unique_ptr<S3RootLock>> S3RootLock::Acquire(Storage& storage, S3Client& client) {
  CAIRN_RETURN_IF_ERROR(CheckNotWithin(client));
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    CAIRN_ASSIGN_OR_RETURN(const Newest found, NewestEpoch(client, 0));
    const uint64_t newest = found.epoch;
    if (newest != 0) {
      const auto holding = ReadEpoch(storage, client, newest);
      // Whoever took the next epoch has removed it meanwhile.
      if (HasReason(holding.status(), Reason::kFileMissing)) continue;
      CAIRN_RETURN_IF_ERROR(holding.status());
      if (holding->alive) return InUse(storage.root(), holding->holder);
    }
    if (newest == 0) CAIRN_RETURN_IF_ERROR(CheckNotAround(client));
    const uint64_t epoch = newest + 1;
    const std::string token = RandomToken(8);
    CAIRN_ASSIGN_OR_RETURN(const Put put, storage.PutIfAbsent(EpochPath(epoch), Record(epoch, token, /*held=*/true)));
    if (put == Put::kExists) continue;  // another one was faster
    CAIRN_ASSIGN_OR_RETURN(const Holding own, ReadEpoch(storage, client, epoch));
    std::unique_ptr<S3RootLock> lock(new S3RootLock(storage, client, epoch, token, own.written));
    // Records below the newest one are removed, so a slow process could have taken a number anew.
    CAIRN_RETURN_IF_ERROR(lock->Check());
    CAIRN_ASSIGN_OR_RETURN(lock->renewal_, StartThread("to hold the root", [lock = lock.get()] { lock->Renew(); }));
    RemoveOlder(client, epoch);
    return lock;
  }
  return MakeError(
      Reason::kStorageError,
      absl::StrCat(storage.FullPath(kS3Epochs), " lists records that are not there, or others took each of ",
                   kMostAttempts, " epochs first"),
      {{"root", storage.root()}});
}

absl::StatusOr<std::optional<RootHolder>> S3RootLock::HolderOf(Storage& storage, S3Client& client) {
  CAIRN_ASSIGN_OR_RETURN(const Newest newest, NewestEpoch(client, 0));
  if (newest.epoch == 0) return std::nullopt;
  const auto holding = ReadEpoch(storage, client, newest.epoch);
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
  bool answers;
  {
    MutexLock lock(mutex_);
    answers = renewed_;
  }
  // Else the next one would wait for the lease to end. Nothing is lost if this fails.
  if (answers) WriteRecord(/*held=*/false);
  client_.SetHurried(false);
}

bool S3RootLock::WriteRecord(bool held) {
  // A record of a lost epoch is gone, and stays so. Whoever waits for the loss is told.
  return Check().ok() && storage_.PutReplacing(EpochPath(epoch_), Record(epoch_, token_, held)).ok();
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
  CAIRN_ASSIGN_OR_RETURN(const Newest newest, NewestEpoch(client_, epoch_));
  if (newest.epoch == epoch_) {
    MutexLock lock(mutex_);
    if (newest.etag == own_etag_ && !own_etag_.empty()) return absl::OkStatus();
  }
  // What a listing lacks is not gone for sure, and the number may be taken again if somebody has removed its record.
  const auto read = client_.Fetch(absl::StrCat(client_.address().prefix, EpochPath(epoch_)), kMaxBytes);
  if (!read.ok() && !HasReason(read.status(), Reason::kFileMissing)) return read.status();
  const std::vector<std::string> words = read.ok() ? WordsOf(read->bytes) : std::vector<std::string>();
  const bool own = words.size() >= 5 && words[4] == token_;
  if (newest.epoch == epoch_ && own) {
    MutexLock lock(mutex_);
    own_etag_ = read->object.etag;
    return absl::OkStatus();
  }
  if (newest.epoch == 0 && own) {
    return MakeError(Reason::kStorageError,
                     absl::StrCat("the store does not list ", storage_.FullPath(EpochPath(epoch_)), ", which is there"),
                     {{"root", storage_.root()}});
  }
  const uint64_t winner = std::max(newest.epoch, epoch_);
  const auto holding = ReadEpoch(storage_, client_, winner);
  const std::string holder = holding.ok() ? holding->holder.text : "";
  return MakeError(
      Reason::kRootInUse,
      holder.empty()
          ? absl::StrCat(storage_.FullPath(EpochPath(epoch_)), " is gone: nobody knows who serves the root")
          : absl::StrCat(storage_.root(), " is served by ", holder, " now: this process did not write its lease for ",
                         absl::FormatDuration(kLease), ", or somebody has removed its record"),
      {{"root", storage_.root()}, {"holder", holder}});
}

}  // namespace cairn
