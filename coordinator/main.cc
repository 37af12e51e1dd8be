// cairn-coordinator: gathers what every rank holds, decides who writes what, and commits checkpoints.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/random_id.h"
#include "common/base/version.h"
#include "common/base/version_text.h"
#include "common/file/posix.h"
#include "common/process/address_file.h"
#include "common/process/arguments.h"
#include "common/process/log.h"
#include "common/process/quantity.h"
#include "common/resources/memory.h"
#include "common/resources/open_files.h"
#include "common/rpc/address.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/token.h"
#include "common/rpc/token_directory.h"
#include "common/rpc/token_source.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/storage/root_proof.h"
#include "coordinator/root_lock/epoch_file.h"
#include "coordinator/server/attempt_store.h"
#include "coordinator/server/server.h"

namespace cairn {
namespace {

constexpr int kLostRoot = SIGUSR1;
// Calls that are in flight are told how they ended; nothing is put in storage any more.
constexpr absl::Duration kLostDrain = absl::Seconds(1);

struct Flags {
  std::string listen = "127.0.0.1:0";
  std::string address_file;
  std::string metrics_listen;
  std::string root;
  std::string phase_timeout = "10m";
  std::string lease_ttl = "10s";
  std::string storage_timeout = "2m";
  std::string check_replicas = "first";
  int bins_per_rank = 2;
  std::string moves = "auto";
  std::string token_file;
  bool insecure = false;
  std::string drain_timeout = "30s";
  std::string lock_timeout = "10s";
};

// Returns what callers must present; empty with --insecure.
absl::StatusOr<std::string> TokenOf(const Flags& flags, PosixStorage& storage) {
  if (flags.insecure) return std::string();
  return flags.token_file.empty() ? MakeRootToken(storage) : ReadTokenFile(flags.token_file);
}

// Directories of this kind are tidied, and go when the user's last session ends.
constexpr time_t kRenewCopySeconds = 60;

void RenewCopy(TokenCopy& copy) {
  // Agents find the token below their root; only commands need --token-file then.
  if (const absl::Status status = copy.Renew(); !status.ok()) {
    Log(LogLevel::kWarn, "token_copy_failed", {{"error", status}});
  }
}

absl::Status Serve(const Flags& flags) {
  const Clock& clock = Clock::Real();
  ServerOptions options;
  options.listen = flags.listen;
  options.metrics_listen = flags.metrics_listen;
  options.save.bins_per_rank = flags.bins_per_rank;
  options.save.moves = flags.moves == "auto" ? MovePolicy::kAuto : MovePolicy::kNever;
  CAIRN_ASSIGN_OR_RETURN(options.decisions.phase_timeout, ParseDuration(flags.phase_timeout));
  CAIRN_ASSIGN_OR_RETURN(options.decisions.lease_ttl, ParseDuration(flags.lease_ttl));
  CAIRN_ASSIGN_OR_RETURN(options.decisions.storage_timeout, ParseDuration(flags.storage_timeout));
  CAIRN_ASSIGN_OR_RETURN(const absl::Duration drain_timeout, ParseDuration(flags.drain_timeout));
  CAIRN_ASSIGN_OR_RETURN(const absl::Duration lock_timeout, ParseDuration(flags.lock_timeout));
  if (options.decisions.phase_timeout <= absl::ZeroDuration() ||
      options.decisions.storage_timeout <= absl::ZeroDuration() ||
      options.decisions.lease_ttl < absl::Milliseconds(300)) {
    return MakeError(Reason::kBadQuantity,
                     "--phase-timeout and --storage-timeout must be above 0s, --lease-ttl at least 300ms");
  }
  options.decisions.check_replicas = flags.check_replicas == "always"  ? ReplicaCheck::kAlways
                                     : flags.check_replicas == "never" ? ReplicaCheck::kNever
                                                                       : ReplicaCheck::kFirst;
  CAIRN_RETURN_IF_ERROR(CheckListenAddress(flags.listen, !flags.token_file.empty()));

  // Signals are taken by the loop below alone; threads that start later inherit the mask.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, kLostRoot);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write beyond a limit fails by EFBIG, and is reported

  // Each agent has a connection.
  const uint64_t open_files = RaiseOpenFileLimit();
  CAIRN_ASSIGN_OR_RETURN(const auto storage, PosixStorage::Open(flags.root, /*create=*/true));
  CAIRN_ASSIGN_OR_RETURN(EpochFile epoch,
                         EpochFile::Acquire(*storage, lock_timeout, clock, [&](const std::string& holder) {
                           Log(LogLevel::kWarn, "waiting", {{"root", flags.root}, {"holder", holder}});
                         }));
  absl::Status creates = storage->ProbeAtomicCreate();
  if (HasReason(creates, Reason::kNoSpace)) {
    // Without a coordinator nobody could load what stands on a full disk.
    AttemptStore::ReleaseReserve(*storage);
    creates = storage->ProbeAtomicCreate();
  }
  CAIRN_RETURN_IF_ERROR(creates);
  CAIRN_ASSIGN_OR_RETURN(options.token, TokenOf(flags, *storage));
  if (flags.insecure) {
    Log(LogLevel::kWarn, "insecure",
        {{"warning",
          "no token is asked for (--insecure): every process of this machine can save, delete and pass for a rank"}});
  }
  options.decisions.coordinator_epoch = epoch.epoch();
  options.began = epoch.began();
  options.decisions.root = storage->root();
  CAIRN_ASSIGN_OR_RETURN(options.decisions.root_proof, PutRootProof(*storage));
  // A root that is another coordinator's by now ends this one, as a signal does.
  std::once_flag once;
  absl::Status lost;
  std::atomic<bool> is_lost = false;
  options.holds_root = [&] {
    const absl::Status held = epoch.Check();
    if (!HasReason(held, Reason::kRootInUse)) return held;
    std::call_once(once, [&] {
      lost = held;
      is_lost = true;
      kill(getpid(), kLostRoot);
    });
    return held;
  };
  options.raise_format = [&] { return epoch.RaiseFormat(); };
  CAIRN_ASSIGN_OR_RETURN(const auto server, CoordinatorServer::Start(options, *storage, clock));
  Log(LogLevel::kInfo, "serving",
      {{"address", server->address()},
       {"root", flags.root},
       {"epoch", epoch.epoch()},
       {"version", std::string(kVersion)},
       {"pid", getpid()},
       {"open_files", open_files},
       {"metrics", flags.metrics_listen.empty() ? "none" : server->metrics_address()}});
  // Before anybody is told the address: who knows it finds the token.
  std::optional<TokenCopy> copy;
  if (flags.token_file.empty() && !flags.insecure) {
    copy.emplace(TokenDirectory::OfThisUser(), server->address(), options.token);
    RenewCopy(*copy);
  }
  std::printf("%s\n", server->address().c_str());
  std::fflush(stdout);
  if (!flags.address_file.empty()) CAIRN_RETURN_IF_ERROR(WriteAddressFile(flags.address_file, server->address()));

  const timespec pause = {kRenewCopySeconds, 0};
  int received = -1;
  while ((received = sigtimedwait(&signals, nullptr, &pause)) < 0) {
    if (errno == EAGAIN && copy) RenewCopy(*copy);
  }
  if (is_lost) {
    Log(LogLevel::kError, "root_lost", {{"error", lost}});
    // Agents hear of it by their next call.
    absl::SleepFor(kLostDrain);
    server->Drain(kLostDrain);
    return lost;
  }
  Log(LogLevel::kInfo, "draining", {{"signal", received}});
  const bool ended = server->Drain(drain_timeout);
  Log(ended ? LogLevel::kInfo : LogLevel::kWarn, "stopped", {{"storage", ended ? "done" : "stalled"}});
  // A thread that storage holds cannot be ended, and what it uses must stay.
  if (!ended) _exit(0);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  ArgumentParser app("cairn-coordinator", "Decides who writes what, and commits checkpoints.",
                     VersionText("cairn-coordinator"));
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    std::string variable = "CAIRN_";
    for (char c : name) variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return app.AddOption("--" + name, value, text).FromEnvironment(variable).ShowDefault();
  };
  add("listen", flags.listen, "Address to listen on; port 0 takes a free one. Beyond loopback --token-file is needed")
      .Fits(IsHostPort, "host:port, for example 127.0.0.1:7420");
  add("address-file", flags.address_file, "Write the address that was bound into this file");
  add("metrics-listen", flags.metrics_listen,
      "Address at which Prometheus finds /metrics, without a token (default: none)")
      .Fits(IsHostPort, "host:port, for example 127.0.0.1:9420");
  add("root", flags.root, "Directory of all checkpoints, the same on every machine").Required();
  add("phase-timeout", flags.phase_timeout, "A rank without progress for that long in a phase ends the operation");
  add("storage-timeout", flags.storage_timeout, "Storage that has not answered for that long is said to be stalled");
  add("lease-ttl", flags.lease_ttl, "An agent not heard of for that long is lost");
  add("check-replicas", flags.check_replicas,
      "Tensors whose replicas differ end a layout's first save (later ones warn, of a sample), every save, or none")
      .OneOf({"first", "always", "never"});
  add("bins-per-rank", flags.bins_per_rank, "Files that each rank writes").Between(1, 99);
  add("moves", flags.moves, "Let light ranks write shards of heavy ones, on the same machine first")
      .OneOf({"auto", "never"});
  Argument token_file = add("token-file", flags.token_file,
                            "File whose first line all callers must present (default: a token made in "
                            "<root>/.cairn/token, which agents and commands of this user on this machine find)");
  app.AddFlag("--insecure", flags.insecure, "Ask for no token: any process of this machine may do everything")
      .FromEnvironment("CAIRN_INSECURE")
      .Excludes(token_file);
  add("drain-timeout", flags.drain_timeout, "How long saves in flight may go on after SIGTERM");
  add("lock-timeout", flags.lock_timeout, "How long to wait for another coordinator of the root to end");
  app.Footer(
      "Prints the address that was bound on standard output, one line per change of state on standard error.\n"
      "Every flag can be set by an environment variable: --phase-timeout by CAIRN_PHASE_TIMEOUT.\n"
      "Examples:\n"
      "  cairn-coordinator --root /ckpt --listen 127.0.0.1:7420\n"
      "  cairn-coordinator --root /ckpt --listen 0.0.0.0:7420 --token-file /run/secrets/cairn-token\n"
      "Exit status: 0 drained, 1 failed, 2 usage.");
  if (const std::optional<int> exit_status = app.Parse(argc, argv)) return *exit_status;
  const absl::Status status = WithMemory("to serve", [&] { return Serve(flags); });
  if (status.ok()) return 0;
  const auto reason = ReasonOf(status);
  std::fprintf(stderr, "error: %s: %s\n", reason ? std::string(InfoOf(*reason).name).c_str() : "INTERNAL",
               std::string(status.message()).c_str());
  if (reason) std::fprintf(stderr, "  next: %s\n", NextActionOf(status).c_str());
  return reason == Reason::kBadQuantity ? 2 : 1;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
