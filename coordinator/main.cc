// cairn-coordinator: gathers what every rank holds, decides who writes what, and commits checkpoints.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/base/version.h"
#include "common/base/version_text.h"
#include "common/process/address_file.h"
#include "common/process/arguments.h"
#include "common/process/ending.h"
#include "common/process/log.h"
#include "common/process/quantity.h"
#include "common/resources/memory.h"
#include "common/resources/open_files.h"
#include "common/rpc/address.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/token_directory.h"
#include "common/rpc/token_source.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "coordinator/server/server.h"
#include "store/mirror/mirror.h"
#include "store/mirror/mirror_rule.h"
#include "store/open/open_storage.h"
#include "store/open/place.h"
#include "store/posix/posix_storage.h"
#include "store/root/root_proof.h"
#include "store/write/attempt_store.h"

namespace cairn {
namespace {

constexpr char kFooter[] =
    R"(Prints the address that was bound on standard output, one line per change of state on standard error.
Every flag can be set by an environment variable: --phase-timeout by CAIRN_PHASE_TIMEOUT.
Examples:
  cairn-coordinator --root /ckpt --listen 127.0.0.1:7420
  cairn-coordinator --root /ckpt --listen 0.0.0.0:7420 --token-file /run/secrets/cairn-token
  cairn-coordinator --root /ckpt --mirror s3://models/llm --mirror-keep-last 20
Exit status: 0 drained, 1 failed, 2 usage.)";

// The flags as they are given.
struct Flags {
  std::string listen = "127.0.0.1:0";
  std::string address_file;
  std::string metrics_listen;
  std::string root;
  std::string phase_timeout = "10m";
  std::string lease_ttl = "10s";
  std::string storage_timeout = "2m";
  std::string check_replicas = "first";
  std::string alarms = "warn";
  int bins_per_rank = 2;
  std::string moves = "auto";
  std::string token_file;
  bool insecure = false;
  std::string drain_timeout = "30s";
  std::string lock_timeout;
  std::string mirror;
  std::string mirror_steps = "all";
  int64_t mirror_keep_last = 0;
};

// The settings that the flags give.
struct Settings {
  ServerOptions server;
  std::string root;
  std::string address_file;
  std::string token_file;
  bool insecure = false;
  absl::Duration drain_timeout;
  std::optional<absl::Duration> lock_timeout;
};

absl::StatusOr<std::optional<MirrorOptions>> ReadMirrorFlags(const Flags& flags) {
  CAIRN_ASSIGN_OR_RETURN(const MirrorRule rule, ParseMirrorRule(flags.mirror_steps, flags.mirror_keep_last));
  if (flags.mirror.empty()) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(std::string address, FullNameOf(flags.mirror));
  address = CanonicalNameOf(address);
  const std::string root = CanonicalNameOf(flags.root);
  if (LieWithinEachOther(address, root)) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("the mirror ", address, " and the root ", root, " lie within each other"),
                     {{"next", "Give the mirror a place outside of the root, best in another storage."}});
  }
  MirrorOptions mirror;
  mirror.address = address;
  mirror.root = root;
  mirror.rule = rule;
  mirror.open = [address](bool create) { return OpenStorage(address, create); };
  return mirror;
}

absl::StatusOr<Settings> ReadFlags(const Flags& flags) {
  Settings settings = {.server = {.listen = flags.listen, .metrics_listen = flags.metrics_listen},
                       .root = flags.root,
                       .address_file = flags.address_file,
                       .token_file = flags.token_file,
                       .insecure = flags.insecure};
  settings.server.save.bins_per_rank = flags.bins_per_rank;
  settings.server.save.moves = flags.moves == "auto" ? MovePolicy::kAuto : MovePolicy::kNever;
  DecisionOptions& decisions = settings.server.decisions;
  CAIRN_ASSIGN_OR_RETURN(decisions.phase_timeout, ParseDurationOf("--phase-timeout", flags.phase_timeout));
  CAIRN_ASSIGN_OR_RETURN(decisions.lease_ttl, ParseDurationOf("--lease-ttl", flags.lease_ttl));
  CAIRN_ASSIGN_OR_RETURN(decisions.storage_timeout, ParseDurationOf("--storage-timeout", flags.storage_timeout));
  CAIRN_ASSIGN_OR_RETURN(settings.drain_timeout, ParseDurationOf("--drain-timeout", flags.drain_timeout));
  if (!flags.lock_timeout.empty()) {
    CAIRN_ASSIGN_OR_RETURN(settings.lock_timeout, ParseDurationOf("--lock-timeout", flags.lock_timeout));
  }
  if (decisions.phase_timeout <= absl::ZeroDuration() || decisions.storage_timeout <= absl::ZeroDuration() ||
      decisions.lease_ttl < absl::Milliseconds(300)) {
    return MakeError(Reason::kBadQuantity,
                     "--phase-timeout and --storage-timeout must be above 0s, --lease-ttl at least 300ms");
  }
  CAIRN_ASSIGN_OR_RETURN(settings.server.mirror, ReadMirrorFlags(flags));
  // Loads of an earlier coordinator come back with their agents within a lease.
  if (settings.server.mirror.has_value()) settings.server.mirror->settle = 2 * decisions.lease_ttl;
  decisions.check_replicas = flags.check_replicas == "always"  ? ReplicaCheck::kAlways
                             : flags.check_replicas == "never" ? ReplicaCheck::kNever
                                                               : ReplicaCheck::kFirst;
  CAIRN_ASSIGN_OR_RETURN(decisions.alarms, AlarmPolicy::Parse(flags.alarms));
  return settings;
}

// Takes the root, and waits for another coordinator of it to end. CANCELLED (INTERRUPTED): this one is to end.
absl::StatusOr<std::unique_ptr<RootLock>> TakeRoot(const Settings& settings, Storage& storage, const Clock& clock,
                                                   Ending& ending) {
  constexpr absl::Duration kRetry = absl::Milliseconds(100);
  // Long enough for a coordinator that ends, and for the lock of one that was killed.
  const absl::Duration usual = absl::Seconds(10) + storage.LockOutlivesHolder();
  const absl::Time deadline = clock.SteadyNow() + settings.lock_timeout.value_or(usual);
  for (bool told = false;; told = true) {
    auto lock = storage.TakeRoot();
    if (!HasReason(lock.status(), Reason::kRootInUse) || clock.SteadyNow() >= deadline) return lock;
    if (!told) {
      Log(LogLevel::kWarn, "waiting", {{"root", settings.root}, {"holder", MetadataOf(lock.status())["holder"]}});
    }
    if (ending.ComesWithin(kRetry)) return MakeError(Reason::kInterrupted, "stopped while it waited for the root");
  }
}

// Checks that an outcome can be put into the root.
absl::Status ProbeRoot(Storage& storage) {
  absl::Status creates = storage.ProbeAtomicCreate();
  if (!HasReason(creates, Reason::kNoSpace)) return creates;
  // Without a coordinator nobody could load what stands on a full disk.
  AttemptStore::ReleaseReserve(storage);
  return storage.ProbeAtomicCreate();
}

// Returns the tokens by which callers must prove themselves; with --insecure there is none.
absl::StatusOr<std::shared_ptr<TokenSource>> TokensOf(const Settings& settings, Storage& storage) {
  if (settings.insecure) {
    Log(LogLevel::kWarn, "insecure",
        {{"warning",
          "no token is asked for (--insecure): every process of this machine can save, delete and pass for a rank"}});
    return TokenSource::Of({});
  }
  if (!settings.token_file.empty()) return TokenSource::Open({.file = settings.token_file});
  const auto* posix = dynamic_cast<const PosixStorage*>(&storage);
  if (posix == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(const std::string token, storage.ReadOrMakeSecret(kRootTokenPath));
    return TokenSource::Of({token});
  }
  CAIRN_RETURN_IF_ERROR(MakeRootToken(posix->directory()).status());
  return TokenSource::Open({.root = settings.root});
}

// A token that was written into the file is known after so long. The token of a root in an object store is read once.
constexpr absl::Duration kReadTokensEach = absl::Seconds(5);
// Directories like the copy's are tidied, and go when the user's last session ends. So the copy is made anew after so
// many of these.
constexpr int kRenewCopyEach = 12;

void RenewCopy(TokenCopy& copy, const TokenSource& tokens) {
  // Agents find the token below their root; only commands need --token-file then.
  if (const absl::Status status = copy.Renew(tokens.tokens().front()); !status.ok()) {
    Log(LogLevel::kWarn, "token_copy_failed", {{"error", status}});
  }
}

// Each agent has a connection, and nobody knows yet how many there will be: a job says that when it registers.
void LogOpenFiles(uint64_t limit) {
  constexpr uint64_t kWanted = 4096;
  if (limit >= kWanted) return;
  Log(LogLevel::kWarn, "open_files_few",
      {{"open_files", limit},
       {"next", absl::StrCat("A job of more than about ", PeersWithin(limit),
                             " ranks cannot connect. Raise the hard limit (ulimit -n, systemd's LimitNOFILE) before "
                             "the coordinator starts.")}});
}

// A root with a typing error is a new root without any checkpoint.
void LogRootMade(const std::string& root) {
  Log(LogLevel::kWarn, "root_made",
      {{"root", root},
       {"next", "Nothing was there before. If checkpoints should be there, stop the coordinator and correct --root."}});
}

void LogServing(const CoordinatorServer& server, const Settings& settings, uint64_t epoch, uint64_t open_files) {
  Log(LogLevel::kInfo, "serving",
      {{"address", server.address()},
       {"root", settings.root},
       {"epoch", epoch},
       {"mirror", settings.server.mirror.has_value() ? settings.server.mirror->address : "none"},
       {"version", std::string(kVersion)},
       {"pid", getpid()},
       {"open_files", open_files},
       {"metrics", settings.server.metrics_listen.empty() ? "none" : server.metrics_address()}});
}

absl::Status TellAddress(const std::string& address, const std::string& address_file) {
  std::puts(address.c_str());
  std::fflush(stdout);
  return address_file.empty() ? absl::OkStatus() : WriteAddressFile(address_file, address);
}

void Drain(CoordinatorServer& server, absl::Duration timeout) {
  const bool ended = server.Drain(timeout);
  const bool mirror = server.only_mirror_stalls();
  Log(ended ? LogLevel::kInfo : LogLevel::kWarn, "stopped",
      {{"storage", ended    ? "done"
                   : mirror ? "done, but the mirror's is stalled"
                            : "stalled"}});
  // A thread that storage holds cannot be ended, and what it uses must stay. A copy goes on with the next start.
  if (!ended) _exit(mirror ? 0 : kExitFailed);
}

// Ends a coordinator that cannot serve any more, and returns why. Nothing is put in storage any more.
absl::Status Leave(CoordinatorServer& server, std::string_view event, absl::Status why) {
  // Agents hear of it by their next call, and calls in flight are told how they ended.
  constexpr absl::Duration kDrain = absl::Seconds(1);
  Log(LogLevel::kError, event, {{"error", why}});
  absl::SleepFor(kDrain);
  Drain(server, kDrain);
  return why;
}

// Serves until something ends it. Returns what went wrong.
absl::Status Serve(Settings settings) {
  CAIRN_RETURN_IF_ERROR(CheckListenAddress(settings.server.listen, !settings.token_file.empty()));
  const Clock& clock = Clock::Real();
  Ending ending;
  const uint64_t open_files = RaiseOpenFileLimit();  // each agent has a connection
  CAIRN_ASSIGN_OR_RETURN(const auto storage, OpenStorage(settings.root, /*create=*/true));
  if (const auto names = storage->List(""); names.ok() && names->empty()) LogRootMade(settings.root);
  CAIRN_ASSIGN_OR_RETURN(const auto root, TakeRoot(settings, *storage, clock, ending));
  CAIRN_RETURN_IF_ERROR(ProbeRoot(*storage));

  ServerOptions& options = settings.server;
  CAIRN_ASSIGN_OR_RETURN(options.tokens, TokensOf(settings, *storage));
  CAIRN_ASSIGN_OR_RETURN(options.decisions.root_proof, PutRootProof(*storage));
  options.decisions.coordinator_epoch = root->epoch();
  options.decisions.root = storage->root();
  options.decisions.open_files = open_files;
  root->OnLost([&](const absl::Status& lost) { ending.OnError(lost); });
  CAIRN_ASSIGN_OR_RETURN(const auto server, CoordinatorServer::Start(options, *storage, *root, clock));
  LogOpenFiles(open_files);

  // The copy comes before anybody is told the address: who knows that finds the token.
  std::optional<TokenCopy> copy;
  if (settings.token_file.empty() && !settings.insecure) {
    copy.emplace(TokenDirectory::OfThisUser(), server->address());
    RenewCopy(*copy, *options.tokens);
  }
  LogServing(*server, settings, root->epoch(), open_files);
  // Whoever wants to serve the root too is told where this one does. Without that, only this help is missing.
  if (const absl::Status told = root->TellAddress(server->address()); !told.ok()) {
    Log(LogLevel::kWarn, "address_untold", {{"error", told}});
  }
  if (absl::Status told = TellAddress(server->address(), settings.address_file); !told.ok()) {
    return Leave(*server, "address_untold", std::move(told));
  }

  const int received = ending.Await(kReadTokensEach, [&, turn = 0, copied = options.tokens->tokens()]() mutable {
    options.tokens->ReloadSoon();
    const bool changed = copied != options.tokens->tokens();
    if (copy && (++turn % kRenewCopyEach == 0 || changed)) RenewCopy(*copy, *options.tokens);
    if (changed) copied = options.tokens->tokens();
  });
  if (absl::Status lost = ending.Error(); !lost.ok()) return Leave(*server, "root_lost", std::move(lost));
  Log(LogLevel::kInfo, "draining", {{"signal", received}});
  Drain(*server, settings.drain_timeout);
  return absl::OkStatus();
}

void AddFlags(Flags& flags, ArgumentParser& app) {
  const auto add = [&](const std::string& flag, auto& value, const std::string& help) {
    return app.AddSetting(flag, value, help);
  };
  add("--listen", flags.listen, "Address to listen on; port 0 takes a free one. Beyond loopback --token-file is needed")
      .Fits(HostPortLike("127.0.0.1:7420"));
  add("--address-file", flags.address_file, "Write the address that was bound into this file");
  add("--metrics-listen", flags.metrics_listen,
      "Address at which Prometheus finds /metrics, without a token (default: none)")
      .Fits(HostPortLike("127.0.0.1:9420"));
  add("--root", flags.root,
      "Directory of all checkpoints, the same on every machine, or s3://bucket/prefix, gs://bucket/prefix")
      .Required();
  add("--mirror", flags.mirror,
      "Experimental. Second root, a directory or s3://bucket/prefix that agents see too: committed checkpoints are "
      "copied there behind the commit, and are loaded from there if the root does not have them");
  add("--mirror-steps", flags.mirror_steps,
      "Which steps the mirror gets: all, newest (a step that still waits when a later one is committed is passed "
      "over), "
      "or every:N (those divisible by N)");
  add("--mirror-keep-last", flags.mirror_keep_last,
      "How many of its newest steps the mirror keeps, besides pinned and tagged ones; 0 keeps all");
  add("--phase-timeout", flags.phase_timeout, "A rank without progress for that long in a phase ends the operation");
  add("--storage-timeout", flags.storage_timeout, "Storage that has not answered for that long is said to be stalled");
  add("--lease-ttl", flags.lease_ttl, "An agent not heard of for that long is lost");
  add("--check-replicas", flags.check_replicas,
      "Which saves fail if two ranks hold different bytes of the same shard: the first save of a layout (later ones "
      "compare a sample and only warn), all of them, or none")
      .OneOf({"first", "always", "never"});
  add("--alarms", flags.alarms,
      "What happens when a saved state looks wrong (docs/trust.md): off, warn, or fail, which keeps the checkpoint and "
      "makes the save an error; KIND=LEVEL for one kind, as in warn,jump=off,non_finite=fail");
  add("--bins-per-rank", flags.bins_per_rank, "Files that each rank writes").Between(1, 99);
  add("--moves", flags.moves, "Let light ranks write shards of heavy ones, on the same machine first")
      .OneOf({"auto", "never"});
  Argument token_file = add(
      "--token-file", flags.token_file,
      "File with the token, or the new one and the one before it, that all callers must know (default: one is made in "
      "<root>/.cairn/token, which agents and commands of this user on this machine find)");
  add("--insecure", flags.insecure, "Ask for no token: any process of this machine may do everything")
      .Excludes(token_file);
  add("--drain-timeout", flags.drain_timeout, "How long saves in flight may go on after SIGTERM");
  add("--lock-timeout", flags.lock_timeout,
      "How long to wait for another coordinator of the root to end (default: 10s; in an object store 25s, because "
      "there the lock of a killed one lasts for 15s)");
}

int Main(int argc, char** argv) {
  Flags flags;
  ArgumentParser app("cairn-coordinator", "Decides who writes what, and commits checkpoints.",
                     VersionText("cairn-coordinator"));
  AddFlags(flags, app);
  app.Footer(kFooter);
  if (const std::optional<int> exit_status = app.Parse(argc, argv)) return *exit_status;
  const absl::StatusOr<Settings> settings = ReadFlags(flags);
  if (!settings.ok()) return ExitStatusOf(settings.status(), kExitUsage);
  return ExitStatusOf(WithMemory("to serve", [&] { return Serve(*settings); }));
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
