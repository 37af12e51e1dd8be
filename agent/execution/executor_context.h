// Holds the options of an agent, and the context that the parts share which carry out its session's decisions.
#ifndef CAIRN_AGENT_EXECUTION_EXECUTOR_CONTEXT_H_
#define CAIRN_AGENT_EXECUTION_EXECUTOR_CONTEXT_H_

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/execution/root_guard.h"
#include "agent/execution/transfer_counters.h"
#include "agent/host/session_host.h"
#include "agent/transport/exchange.h"
#include "agent/transport/transfer_context.h"
#include "gpu/share/worker_process.h"
#include "store/storage/storage.h"

namespace cairn {

struct AgentOptions {
  std::string coordinator;
  std::string job;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  std::string root;
  std::string listen = "127.0.0.1:0";
  // Address that other agents are told; empty: the one that was bound.
  std::string advertise;
  std::string socket_directory;  // empty: DefaultSocketDirectory
  std::string node;
  // Holds the token of the coordinator and of other agents; empty: it is looked for, see common/rpc/token_source.h.
  std::string token_file;
  // No token is sent, and other agents are asked for none.
  bool insecure = false;
  std::vector<uid_t> allowed_users;
  // Directories below which loads may import. Needed only with `allowed_users`, who could read through this agent what
  // they cannot read themselves.
  std::vector<std::string> import_roots;
  uint64_t memory_budget = 0;  // 0: what the container and the machine allow
  // Staging and read buffers have huge pages that were set aside, where enough are free.
  bool huge_pages = false;
  // Small, so that reading and copying overlap and the copies find their bytes in the processor's cache.
  uint64_t round_bytes = uint64_t{32} << 20;
  int io_threads = 2;            // at least; as many more as the storage is worth
  uint64_t write_bandwidth = 0;  // bytes per second; 0: as quickly as storage takes it
  bool direct_io = true;
  // False: bytes between agents always go over gRPC.
  bool shared_memory = true;
  // Loads take from the slab what it still holds of the last committed save.
  bool slab_loads = true;
  WorkerProcessOptions gpu_worker = {};
  absl::Duration register_timeout = absl::Seconds(20);
  // Called once, from a thread of the agent, if it must end: the coordinator has refused it for good.
  std::function<void(const absl::Status&)> on_fatal;
};

// All of these outlive the executors.
struct ExecutorContext {
  const AgentOptions& options;
  Storage& storage;
  RootGuard& root;
  SessionHost& host;
  TransferCounters& counters;
  const TransferContext& transfer;
  Exchange& exchange;

  // How many threads read or write files.
  int io_threads() const { return std::max(options.io_threads, storage.CallsAtOnce()); }
};

// Threads that touch new pages of shared memory, in parallel as each page is cleared by the kernel.
int FaultThreads();

}  // namespace cairn

#endif  // CAIRN_AGENT_EXECUTION_EXECUTOR_CONTEXT_H_
