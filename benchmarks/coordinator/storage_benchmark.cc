// Measures what the coordinator's steps in storage cost by the number of ranks: calls of the file system, and time.
//
//   storage_benchmark plan DIRECTORY RANKS TENSORS        keeps what a first plan was made from, and finds it again
//   storage_benchmark check DIRECTORY FILES               checks the bins of an attempt and puts its manifest
//   storage_benchmark remove DIRECTORY FILES [BYTES]      removes an aborted attempt whose files have BYTES each
//   storage_benchmark memory DIRECTORY RANKS TENSORS [fsdp|megatron]   what a save keeps in memory, by part
//
// Counts are those of this process, from before a step to after it. Layouts are those of fully sharded training: each
// rank holds other rows of every tensor, so all layouts differ.
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/format/checkpoint_path.h"
#include "common/format/manifest.h"
#include "coordinator/server/plan_store.h"
#include "planner/layout/layout_description.h"
#include "store/plan/layout_store.h"
#include "store/posix/posix_storage.h"
#include "store/read/checkpoint_store.h"
#include "store/write/attempt_store.h"

namespace {

struct Calls {
  std::atomic<long> fsync = 0, open = 0, stat = 0, unlink = 0, rename = 0, write = 0, thread = 0;
};
Calls calls;

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// These come before the C library's.
extern "C" {

int fsync(int fd) {
  static const auto real = Real<int(int)>("fsync");
  ++calls.fsync;
  return real(fd);
}
int openat(int directory, const char* name, int flags, ...) {
  static const auto real = Real<int(int, const char*, int, ...)>("openat");
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  ++calls.open;
  return real(directory, name, flags, mode);
}
int fstatat(int directory, const char* name, struct stat* info, int flags) noexcept {
  static const auto real = Real<int(int, const char*, struct stat*, int)>("fstatat");
  ++calls.stat;
  return real(directory, name, info, flags);
}
int unlinkat(int directory, const char* name, int flags) noexcept {
  static const auto real = Real<int(int, const char*, int)>("unlinkat");
  ++calls.unlink;
  return real(directory, name, flags);
}
int renameat(int from, const char* name, int to, const char* new_name) noexcept {
  static const auto real = Real<int(int, const char*, int, const char*)>("renameat");
  ++calls.rename;
  return real(from, name, to, new_name);
}
ssize_t write(int fd, const void* bytes, size_t size) {
  static const auto real = Real<ssize_t(int, const void*, size_t)>("write");
  ++calls.write;
  return real(fd, bytes, size);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* argument) noexcept {
  static const auto real = Real<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  ++calls.thread;
  return real(thread, attributes, work, argument);
}

}  // extern "C"

namespace cairn {
namespace {

// Prints what a step cost.
template <typename Function>
void Measure(const std::string& what, Function step) {
  const std::vector<std::pair<const char*, std::atomic<long>*>> counters = {
      {"fsync", &calls.fsync},   {"openat", &calls.open}, {"fstatat", &calls.stat},         {"unlinkat", &calls.unlink},
      {"rename", &calls.rename}, {"write", &calls.write}, {"pthread_create", &calls.thread}};
  std::vector<long> before;
  for (const auto& [name, count] : counters) before.push_back(*count);
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = step();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%-28s %9.3f s ", what.c_str(), took.count());
  for (size_t i = 0; i < counters.size(); ++i) {
    std::printf("  %s %ld", counters[i].first, *counters[i].second - before[i]);
  }
  std::printf("%s\n", status.ok() ? "" : std::string("  " + std::string(status.message())).c_str());
}

struct World {
  std::vector<std::string> layout, digest, node;
};

// The layout of one rank, as fully sharded training has it, or as Megatron does with 16 pipeline stages, 8-fold tensor
// parallelism and a distributed optimizer.
std::string LayoutOf(const std::string& style, int64_t rank, int64_t ranks, int64_t tensors) {
  constexpr int64_t kTp = 8, kPp = 16;
  LayoutDescription layout;
  if (style == "fsdp") {
    for (int64_t i = 0; i < tensors; ++i) {
      const int64_t rows = 32768 + 128 * i, columns = 4096;
      const int64_t step = (rows + ranks - 1) / ranks;
      const int64_t begin = std::min(rows, rank * step), end = std::min(rows, begin + step);
      layout.tensors.push_back({absl::StrCat("model.layers.", i / 10, ".module.", i % 10, ".weight"),
                                DType::kFloat32,
                                {rows, columns},
                                {{{{begin, 0}, {end - begin, columns}}, std::nullopt}}});
    }
  } else {
    const int64_t dp = ranks / (kTp * kPp), t = rank % kTp, d = rank / kTp % dp, p = rank / (kTp * dp);
    for (int64_t i = 0; i < tensors / 2; ++i) {
      const int64_t rows = 8192, columns = 4096 + 64 * i;
      const std::string name = absl::StrCat("decoder.layers.", p * tensors / 20 + i / 10, ".block.", i % 10, ".weight");
      const Box box =
          i % 2 ? Box{{rows / kTp * t, 0}, {rows / kTp, columns}} : Box{{0, columns / kTp * t}, {rows, columns / kTp}};
      layout.tensors.push_back({name, DType::kBfloat16, {rows, columns}, {{box, std::nullopt}}});
      if (i >= tensors / 6) continue;
      const int64_t size = box.size(), step = (size + dp - 1) / dp;
      const FlatRange range{std::min(size, d * step), std::min(size, (d + 1) * step)};
      for (const char* state : {"exp_avg", "exp_avg_sq", "fp32_param"}) {
        layout.tensors.push_back(
            {absl::StrCat("optimizer.", state, ".", name), DType::kFloat32, {rows, columns}, {{box, range}}});
      }
    }
  }
  layout.objects.push_back({"rng", 8192, true});
  Canonicalize(layout);
  return SerializeLayout(layout);
}

World MakeWorld(int64_t ranks, int64_t tensors) {
  World world;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    world.layout.push_back(LayoutOf("fsdp", rank, ranks, tensors));
    world.digest.push_back(Digest(world.layout.back()));
    world.node.push_back(absl::StrCat("node", rank / 8));
  }
  return world;
}

absl::Status PutLayouts(const World& world, LayoutStore& layouts) {
  for (size_t i = 0; i < world.layout.size(); ++i) {
    if (absl::Status put = layouts.Put(world.digest[i], world.layout[i]); !put.ok()) return put;
  }
  return absl::OkStatus();
}

constexpr uint64_t kCapacity = uint64_t{4} << 30;

int Plan(Storage& storage, int64_t ranks, int64_t tensors) {
  const World world = MakeWorld(ranks, tensors);
  std::string digest;
  {
    LayoutStore layouts(kCapacity);
    PlanStore plans(storage, layouts, SaveOptions());
    Measure("recover (nothing there)", [&] { return plans.Recover().status(); });
    if (!PutLayouts(world, layouts).ok()) return 1;
    Measure("plan", [&] {
      const auto plan = plans.MakeSave(world.digest, world.node);
      if (plan.ok()) digest = plan->digest();
      return plan.status();
    });
    Measure("keep", [&] { return plans.Persist(digest, world.digest, world.node); });
  }
  LayoutStore layouts(kCapacity);
  PlanStore plans(storage, layouts, SaveOptions());
  Measure("recover", [&] { return plans.Recover().status(); });
  Measure("find", [&] { return plans.FindSave(digest).status(); });
  return 0;
}

std::vector<BinFile> MakeFiles(const std::string& directory, int files, int64_t bytes) {
  std::vector<BinFile> bins;
  for (int i = 0; i < files; ++i) {
    bins.push_back({absl::StrCat(BinName(i, 0), ".safetensors"), i, static_cast<uint64_t>(bytes)});
    const int fd = open((directory + "/" + bins.back().name).c_str(), O_WRONLY | O_CREAT, 0644);
    // Blocks on disk, as those of a bin.
    if (fd < 0 || (bytes > 0 && fallocate(fd, 0, 0, bytes) != 0)) std::perror("fallocate");
    close(fd);
  }
  sync();
  return bins;
}

int Attempt(Storage& storage, int files, int64_t bytes, bool remove) {
  CheckpointStore checkpoints(storage);
  const auto lock = storage.TakeRoot();
  if (!lock.ok()) return 1;
  AttemptStore attempts(storage, checkpoints, Clock::Real(), **lock);
  const auto reserved = attempts.Reserve("job", {.step = 1});
  if (!reserved.ok()) return 1;
  const std::string directory = absl::StrCat(storage.root(), "/", AttemptDirectory("job", 1, reserved->attempt));
  const auto bins = std::make_shared<const std::vector<BinFile>>(MakeFiles(directory, files, bytes));
  PutOutcome put{.step = 1, .attempt = reserved->attempt, .nonce = reserved->nonce};
  if (remove) {
    put.error = absl::AbortedError("a benchmark");
    Measure("abort record", [&] { return attempts.Put("job", put).standing.status(); });
    Measure("remove", [&] { return attempts.Remove("job", 1, reserved->attempt); });
  } else {
    Manifest manifest;
    manifest.job = "job";
    manifest.step = 1;
    manifest.attempt = reserved->attempt;
    manifest.world_size = 1;
    manifest.layout_digests = {std::string(kDigestBytes, 'd')};
    manifest.rank_layout = {0};
    manifest.nodes = {"n"};
    manifest.rank_node = {0};
    put.manifest = std::make_shared<const std::string>(EncodeOutcome(manifest));
    put.bins = bins;
    Measure("check and put", [&] { return attempts.Put("job", put).standing.status(); });
  }
  return 0;
}

// Bytes that this process has taken and not given back.
double HeapMiB() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / (1 << 20);
}

std::vector<RankResult> Results(const SavePlan& plan) {
  std::vector<RankResult> results;
  uint32_t crc = 12345;
  for (const int rank : plan.ranks()) {
    v1::WritePlan part;
    if (!part.ParseFromString(plan.PartFor(rank))) std::exit(1);
    RankResult& result = results.emplace_back();
    result.rank = rank;
    for (const v1::PlannedFile& file : part.files()) {
      v1::FileResult& out = *result.result.add_files();
      out.set_file_bytes(file.header_bytes() + file.data_bytes());
      for (int i = 0; i < file.items_size(); ++i) out.add_item_checksums(crc = crc * 1664525 + 1013904223);
      out.add_object_sizes(100);
    }
  }
  return results;
}

int Memory(Storage& storage, const std::string& style, int64_t ranks, int64_t tensors) {
  double before = HeapMiB();
  const auto tell = [&](const char* what) {
    const double now = HeapMiB();
    std::printf("%-46s %9.1f MiB %9.0f bytes a rank\n", what, now - before,
                (now - before) * (1 << 20) / static_cast<double>(ranks));
    before = HeapMiB();
  };
  LayoutStore layouts(kCapacity);
  std::vector<std::string> digests, nodes;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::string layout = LayoutOf(style, rank, ranks, tensors);
    digests.push_back(Digest(layout));
    nodes.push_back(absl::StrCat("node", rank / 8));
    if (!layouts.Put(digests.back(), std::move(layout)).ok()) return 1;
  }
  tell("layouts, as uploaded (with digests and nodes)");
  PlanStore plans(storage, layouts, SaveOptions());
  auto plan = plans.MakeSave(digests, nodes);
  if (!plan.ok()) return std::fprintf(stderr, "%s\n", std::string(plan.status().message()).c_str()), 1;
  tell("plan");
  if (!plans.Persist(plan->digest(), digests, nodes).ok()) return 1;
  tell("plan, kept on disk");
  size_t part_bytes = 0;
  for (const int rank : plan->ranks()) part_bytes += (*plans.PartFor(plan->digest(), rank))->size();
  tell("parts of all ranks, after each was asked for");
  std::printf("%-46s %9.1f MiB\n", "  their bytes, if all were kept", static_cast<double>(part_bytes) / (1 << 20));
  auto results = Results(*plan);
  tell("results of all ranks (of the job)");
  auto manifest = plan->MakeManifest(results, CommitInfo{.job = "job", .world_size = static_cast<uint32_t>(ranks)});
  if (!manifest.ok()) return std::fprintf(stderr, "%s\n", std::string(manifest.status().message()).c_str()), 1;
  tell("manifest, as it is made");
  std::string encoded;
  Measure("encode", [&] { return encoded = EncodeOutcome(*manifest), absl::OkStatus(); });
  tell("manifest, as it is put");
  Measure("decode", [&] { return DecodeOutcome(encoded).status(); });
  LoadWish wish;
  const auto load = plans.MakeLoad(*manifest, digests, nodes, 0, wish);
  if (!load.ok()) return std::fprintf(stderr, "%s\n", std::string(load.status().message()).c_str()), 1;
  tell("plan of a load into the same layouts");
  const auto hold = plans.HoldLoad(*load);
  for (const int rank : load->ranks()) (void)plans.PartFor(load->digest(), rank);
  tell("parts of the load, after each was asked for");
  return 0;
}

int Run(int count, char** words) {
  const auto number = [&](int i, int64_t otherwise = 0) {
    int64_t value = otherwise;
    if (i < count && !absl::SimpleAtoi(words[i], &value)) std::exit(2);
    return value;
  };
  const std::string what = count > 1 ? words[1] : "";
  if (count < 4) {
    std::fprintf(stderr, "see the head of the source\n");
    return 2;
  }
  const auto storage = PosixStorage::Open(words[2], true);
  if (!storage.ok()) return 1;
  if (what == "plan") return Plan(**storage, number(3), number(4, 100));
  if (what == "memory") return Memory(**storage, count > 5 ? words[5] : "fsdp", number(3), number(4));
  if (what == "check") return Attempt(**storage, static_cast<int>(number(3)), number(4, 4096), /*remove=*/false);
  if (what == "remove") return Attempt(**storage, static_cast<int>(number(3)), number(4, 4096), /*remove=*/true);
  return 2;
}

}  // namespace
}  // namespace cairn

int main(int count, char** words) { return cairn::Run(count, words); }
