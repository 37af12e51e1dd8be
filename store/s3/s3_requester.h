// Sends requests to an object store, each until the store has answered it, or until nothing has come of it for too
// long.
#ifndef CAIRN_STORE_S3_S3_REQUESTER_H_
#define CAIRN_STORE_S3_S3_REQUESTER_H_

#include <atomic>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "store/s3/s3_address.h"
#include "store/s3/s3_pace.h"
#include "store/s3/s3_reply.h"
#include "store/s3/s3_wire.h"
#include "store/s3/s3_xml.h"

namespace cairn {

struct S3RequesterOptions {
  S3Wire::Options wire;
  // A request that fails is sent again for so long after the requester's last success, and ten times as long in all.
  // Once nothing has succeeded for so long, later requests are tried for some seconds only.
  absl::Duration patience = absl::Seconds(120);
  // The same until the store has first accepted the credentials: they, or the address, may be wrong.
  absl::Duration first_patience = absl::Seconds(20);
  // The same as long as nothing has ever been sent, because no connection could be made.
  absl::Duration connect_patience = absl::Seconds(5);
};

// Thread-safe. Methods block.
class S3Requester {
 public:
  using Options = S3RequesterOptions;
  S3Requester(const S3Address& address, const Clock& clock, const Options& options, std::unique_ptr<S3Wire> wire)
      : address_(address),
        clock_(clock),
        options_(options),
        wire_(std::move(wire)),
        window_(options.wire.connections) {}

  const S3Address& address() const { return address_; }
  const Options& options() const { return options_; }
  absl::Time Now() const { return clock_.SteadyNow(); }

  // Sends a request until an answer is final, or it is given up.
  S3Reply Ask(const S3Request& request);
  // Returns the XML of a good answer. UNAVAILABLE (STORAGE_ERROR): it is no XML of this name; a proxy may have
  // answered. Else as ErrorOf.
  absl::StatusOr<S3Xml> AskForXml(const S3Request& request, std::string_view name);
  // Waits before the next try of what has failed `attempt` times.
  void BackOff(int attempt);
  // While this is set, a request that fails is given up within seconds, because its process is about to end.
  void SetHurried(bool hurried);

 private:
  // Returns how long a request is tried that begins at a time.
  absl::Duration PatienceAt(absl::Time begun);
  // Waits as BackOff, unless `stop` (which may be null) becomes true.
  void BackOffUnless(int attempt, const std::atomic<bool>* stop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for room in the window.
  void Enter();
  void Leave(S3Verdict verdict, int status);

  const S3Address address_;
  const Clock& clock_;
  const Options options_;
  const std::unique_ptr<S3Wire> wire_;
  Mutex mutex_;
  CondVar changed_;
  S3Window window_ ABSL_GUARDED_BY(mutex_);
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  // When the store last answered a request of credentials that it knows.
  absl::Time last_answer_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // Since when no request has had such an answer.
  absl::Time failing_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool hurried_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_REQUESTER_H_
