#include "tests/gpu/contract_cases.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "common/base/crc32c.h"
#include "common/base/crc64.h"
#include "gpu/copy/crc_kernels.h"
#include "tests/gpu/sharing_cases.h"

namespace cairn {
namespace {

using cuda::DevicePointer;
using cuda::Result;

constexpr size_t kBytes = size_t{1} << 20;

// Has device memory and a stream for one case.
struct Device {
  explicit Device(const GpuDriver& driver, unsigned stream_flags = cuda::kStreamNonBlocking) : call(driver.call()) {
    if (call.memory_allocate(&memory, kBytes) != cuda::kSuccess) std::abort();
    if (call.stream_create(&stream, stream_flags) != cuda::kSuccess) std::abort();
  }
  ~Device() {
    call.stream_synchronize(stream);
    call.stream_destroy(stream);
    if (memory != 0) call.memory_free(memory);
  }
  const cuda::Functions& call;
  DevicePointer memory = 0;
  cuda::Stream stream = nullptr;
};

// Pages of shared memory, as a slab has.
struct Pages {
  Pages() {
    const int file = memfd_create("contract", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, kBytes) != 0) std::abort();
    void* found = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    close(file);
    if (found == MAP_FAILED) std::abort();
    bytes = static_cast<char*>(found);
  }
  ~Pages() { munmap(bytes, kBytes); }
  void Fill(int seed) {
    for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i * 31 + static_cast<size_t>(seed));
  }
  bool operator==(const Pages& other) const { return std::memcmp(bytes, other.bytes, kBytes) == 0; }
  char* bytes = nullptr;
};

// A kernel that sums arrays, compiled by the driver.
struct Kernel {
  explicit Kernel(const GpuDriver& driver, const char* ptx = kCrc32cKernelPtx,
                  const char* name = crc_lanes::Crc32c::kKernelName)
      : call(driver.call()) {
    loaded = call.module_load(&module, ptx);
    if (loaded == cuda::kSuccess) loaded = call.module_get_function(&function, module, name);
  }
  ~Kernel() { call.module_unload(module); }
  Result Launch(DevicePointer ranges, uint32_t count, unsigned long long blocks, DevicePointer sums,
                cuda::Stream stream) {
    void* parameters[] = {&ranges, &count, &blocks, &sums};
    const auto grid = static_cast<unsigned>((blocks + crc_lanes::kWarps - 1) / crc_lanes::kWarps);
    return call.launch_kernel(function, grid, 1, 1, crc_lanes::kThreads, 1, 1, 0, stream, parameters, nullptr);
  }
  const cuda::Functions& call;
  cuda::Module module = nullptr;
  cuda::Function function = nullptr;
  Result loaded = cuda::kSuccess;
};

std::string Equal(bool equal) { return equal ? "bytes equal" : "bytes differ"; }

// Copies there and back on one stream.
std::string ThereAndBack(const GpuDriver& driver, Pages& from, Pages& to) {
  Device device(driver);
  from.Fill(1);
  const Result there = device.call.copy_to_device(device.memory, from.bytes, kBytes, device.stream);
  const Result back = device.call.copy_to_host(to.bytes, device.memory, kBytes, device.stream);
  const Result waited = device.call.stream_synchronize(device.stream);
  return driver.NameOf(there) + ", " + driver.NameOf(back) + ", " + driver.NameOf(waited) + ", " + Equal(from == to);
}

std::string Attribute(const GpuDriver& driver, int attribute, DevicePointer address) {
  int value = -1;
  const Result result = driver.call().pointer_get_attribute(&value, attribute, address);
  return result == cuda::kSuccess ? std::to_string(value) : driver.NameOf(result);
}

DevicePointer AddressOf(const void* memory) { return static_cast<DevicePointer>(reinterpret_cast<uintptr_t>(memory)); }

cuda::Copy2D ToHost(DevicePointer source, size_t pitch, void* target, size_t target_pitch, size_t width, size_t rows) {
  cuda::Copy2D copy = {};
  copy.source_type = cuda::kMemoryTypeDevice;
  copy.source_device = source;
  copy.source_pitch = pitch;
  copy.target_type = cuda::kMemoryTypeHost;
  copy.target_host = target;
  copy.target_pitch = target_pitch;
  copy.width = width;
  copy.height = rows;
  return copy;
}

// Ends a capture, in which nothing was to be recorded.
std::string EndCapture(const GpuDriver& driver, cuda::Stream stream) {
  cuda::Graph graph = nullptr;
  const Result ended = driver.call().stream_end_capture(stream, &graph);
  if (graph != nullptr) driver.call().graph_destroy(graph);
  return driver.NameOf(ended);
}

// Asks for an event in a thread of this mode, while this thread captures. Returns what both got.
std::string QueryWhileCapturing(const GpuDriver& driver, int mode) {
  Device device(driver);
  const auto& call = driver.call();
  cuda::Event event = nullptr;
  cuda::Context context = nullptr;
  call.event_create(&event, cuda::kEventDisableTiming);
  call.context_pop(&context);
  call.context_push(context);
  call.stream_begin_capture(device.stream, cuda::kCaptureGlobal);
  Result asked = cuda::kUnknown;
  std::thread([&] {
    int exchanged = mode;
    cuda::Context own = context;
    call.context_push(own);
    if (call.thread_exchange_capture_mode(&exchanged) == cuda::kSuccess) asked = call.event_query(event);
    call.context_pop(&own);
  }).join();
  const std::string ended = EndCapture(driver, device.stream);
  call.event_destroy(event);
  return driver.NameOf(asked) + ", " + ended;
}

std::vector<ContractCase> Cases() {
  std::vector<ContractCase> cases;
  const auto add = [&](const char* name, std::function<std::string(const GpuDriver&)> run) {
    cases.push_back({name, std::move(run)});
  };

  // These are about the beginning.
  add("init_again", [](const GpuDriver& d) { return d.NameOf(d.call().init(0)); });
  add("init_with_flags", [](const GpuDriver& d) { return d.NameOf(d.call().init(1)); });
  add("init_in_a_forked_child", [](const GpuDriver& d) {
    const pid_t child = fork();
    if (child == 0) _exit(d.call().init(0) & 0x7f);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? d.NameOf(WEXITSTATUS(status)) : std::string("the child was killed");
  });
  add("device_beyond_the_last", [](const GpuDriver& d) {
    int count = 0;
    cuda::Device device = 0;
    d.call().device_get_count(&count);
    return d.NameOf(d.call().device_get(&device, count));
  });
  add("name_of_an_unknown_error", [](const GpuDriver& d) {
    const char* name = nullptr;
    return d.NameOf(d.call().get_error_name(123456, &name));
  });

  // These are about contexts.
  add("copy_without_a_context", [](const GpuDriver& d) {
    Device device(d);
    char byte = 0;
    cuda::Context context = nullptr;
    d.call().context_pop(&context);
    const Result result = d.call().copy_to_host(&byte, device.memory, 1, device.stream);
    d.call().context_push(context);
    return d.NameOf(result);
  });
  add("pop_without_a_context", [](const GpuDriver& d) {
    cuda::Context context = nullptr, none = nullptr;
    d.call().context_pop(&context);
    const Result result = d.call().context_pop(&none);
    d.call().context_push(context);
    return d.NameOf(result);
  });
  add("retain_twice_gives_one_context", [](const GpuDriver& d) {
    cuda::Context first = nullptr, second = nullptr;
    d.call().primary_context_retain(&first, 0);
    d.call().primary_context_retain(&second, 0);
    d.call().primary_context_release(0);
    d.call().primary_context_release(0);
    return std::string(first == second ? "one" : "two");
  });

  // These are about device memory.
  add("allocate_nothing", [](const GpuDriver& d) {
    DevicePointer memory = 0;
    return d.NameOf(d.call().memory_allocate(&memory, 0));
  });
  add("allocate_too_much", [](const GpuDriver& d) {
    DevicePointer memory = 0;
    return d.NameOf(d.call().memory_allocate(&memory, size_t{1} << 46));
  });
  add("free_what_was_never_allocated", [](const GpuDriver& d) {
    int local = 0;
    return d.NameOf(d.call().memory_free(AddressOf(&local)));
  });
  add("attributes_of_device_memory", [](const GpuDriver& d) {
    Device device(d);
    const DevicePointer last = device.memory + kBytes - 1;
    return Attribute(d, cuda::kPointerMemoryType, device.memory) + " " +
           Attribute(d, cuda::kPointerDeviceOrdinal, device.memory) + " " +
           Attribute(d, cuda::kPointerMemoryType, last) + " " + Attribute(d, cuda::kPointerDeviceOrdinal, last);
  });
  add("attributes_of_freed_memory", [](const GpuDriver& d) {
    Device device(d);
    const DevicePointer memory = std::exchange(device.memory, 0);
    d.call().memory_free(memory);
    return Attribute(d, cuda::kPointerMemoryType, memory);
  });
  add("attributes_of_the_hosts_memory", [](const GpuDriver& d) {
    const Pages pages;
    return Attribute(d, cuda::kPointerMemoryType, AddressOf(pages.bytes));
  });
  add("attributes_of_registered_memory", [](const GpuDriver& d) {
    const Pages pages;
    d.call().host_register(pages.bytes, kBytes, cuda::kMemHostRegisterPortable);
    const std::string type = Attribute(d, cuda::kPointerMemoryType, AddressOf(pages.bytes));
    d.call().host_unregister(pages.bytes);
    return type;
  });
  add("attributes_at_once", [](const GpuDriver& d) {
    Device device(d);
    const Pages pages;
    const auto ask = [&](DevicePointer address) {
      int type = -1, ordinal = -1, legacy = -1;
      int names[] = {cuda::kPointerMemoryType, cuda::kPointerDeviceOrdinal, cuda::kPointerLegacyIpcCapable};
      void* values[] = {&type, &ordinal, &legacy};
      const Result result = d.call().pointer_get_attributes(3, names, values, address);
      return d.NameOf(result) + " " + std::to_string(type) + " " + std::to_string(ordinal) + " " +
             std::to_string(legacy);
    };
    return ask(device.memory + kBytes - 1) + ", " + ask(AddressOf(pages.bytes));
  });

  // These are about pinned memory.
  add("register_shared_memory", [](const GpuDriver& d) {
    const Pages pages;
    const Result there = d.call().host_register(pages.bytes, kBytes, cuda::kMemHostRegisterPortable);
    return d.NameOf(there) + ", " + d.NameOf(d.call().host_unregister(pages.bytes));
  });
  add("register_nothing", [](const GpuDriver& d) {
    const Pages pages;
    return d.NameOf(d.call().host_register(pages.bytes, 0, cuda::kMemHostRegisterPortable));
  });
  add("register_twice", [](const GpuDriver& d) {
    const Pages pages;
    d.call().host_register(pages.bytes, kBytes, cuda::kMemHostRegisterPortable);
    const Result again = d.call().host_register(pages.bytes, kBytes, cuda::kMemHostRegisterPortable);
    d.call().host_unregister(pages.bytes);
    return d.NameOf(again);
  });
  add("register_what_overlaps", [](const GpuDriver& d) {
    const Pages pages;
    d.call().host_register(pages.bytes, kBytes / 2, cuda::kMemHostRegisterPortable);
    const Result again = d.call().host_register(pages.bytes + kBytes / 4, kBytes / 2, cuda::kMemHostRegisterPortable);
    d.call().host_unregister(pages.bytes);
    return d.NameOf(again);
  });
  // As a worker maps memory that it may only read.
  add("register_what_is_mapped_read_only", [](const GpuDriver& d) {
    Pages pages;
    const Pages back;
    pages.Fill(1);
    Device device(d);
    if (mprotect(pages.bytes, kBytes, PROT_READ) != 0) std::abort();
    const Result plain = d.call().host_register(pages.bytes, kBytes, cuda::kMemHostRegisterPortable);
    if (plain == cuda::kSuccess) d.call().host_unregister(pages.bytes);
    const Result read_only =
        d.call().host_register(pages.bytes, kBytes, cuda::kMemHostRegisterPortable | cuda::kMemHostRegisterReadOnly);
    const Result there = d.call().copy_to_device(device.memory, pages.bytes, kBytes, device.stream);
    d.call().stream_synchronize(device.stream);
    if (read_only == cuda::kSuccess) d.call().host_unregister(pages.bytes);
    d.call().copy_to_host(back.bytes, device.memory, kBytes, device.stream);
    d.call().stream_synchronize(device.stream);
    return d.NameOf(plain) + ", " + d.NameOf(read_only) + ", " + d.NameOf(there) + ", " + Equal(pages == back);
  });
  add("unregister_twice", [](const GpuDriver& d) {
    const Pages pages;
    d.call().host_register(pages.bytes, kBytes, cuda::kMemHostRegisterPortable);
    d.call().host_unregister(pages.bytes);
    return d.NameOf(d.call().host_unregister(pages.bytes));
  });
  add("free_host_memory_that_was_registered", [](const GpuDriver& d) {
    const Pages pages;
    d.call().host_register(pages.bytes, kBytes, cuda::kMemHostRegisterPortable);
    const Result result = d.call().host_free(pages.bytes);
    d.call().host_unregister(pages.bytes);
    return d.NameOf(result);
  });

  // Copies.
  add("copy_pinned", [](const GpuDriver& d) {
    Pages from, to;
    for (const Pages* pages : {&from, &to})
      d.call().host_register(pages->bytes, kBytes, cuda::kMemHostRegisterPortable);
    const std::string result = ThereAndBack(d, from, to);
    for (const Pages* pages : {&from, &to}) d.call().host_unregister(pages->bytes);
    return result;
  });
  add("copy_over_the_seam_of_two_registered_pieces", [](const GpuDriver& d) {
    Pages from, to;
    for (const Pages* pages : {&from, &to}) {
      d.call().host_register(pages->bytes, kBytes / 2, cuda::kMemHostRegisterPortable);
      d.call().host_register(pages->bytes + kBytes / 2, kBytes / 2, cuda::kMemHostRegisterPortable);
    }
    const std::string result = ThereAndBack(d, from, to);
    for (const Pages* pages : {&from, &to}) {
      d.call().host_unregister(pages->bytes);
      d.call().host_unregister(pages->bytes + kBytes / 2);
    }
    return result;
  });
  add("copy_pageable", [](const GpuDriver& d) {
    Pages from, to;
    return ThereAndBack(d, from, to);
  });
  add("copy_to_pageable_memory_ends_with_the_call", [](const GpuDriver& d) {
    Device device(d);
    Pages from, to;
    from.Fill(3);
    d.call().copy_to_device(device.memory, from.bytes, kBytes, device.stream);
    d.call().copy_to_host(to.bytes, device.memory, kBytes, device.stream);
    return Equal(from == to);
  });
  add("copy_nothing", [](const GpuDriver& d) {
    Device device(d);
    Pages to;
    return d.NameOf(d.call().copy_to_host(to.bytes, device.memory, 0, device.stream));
  });
  add("copy_from_freed_memory", [](const GpuDriver& d) {
    Device device(d);
    Pages to;
    const DevicePointer memory = std::exchange(device.memory, 0);
    d.call().memory_free(memory);
    return d.NameOf(d.call().copy_to_host(to.bytes, memory, 64, device.stream));
  });
  add("copy_rows", [](const GpuDriver& d) {
    Device device(d);
    Pages from, to;
    from.Fill(4);
    d.call().copy_to_device(device.memory, from.bytes, kBytes, device.stream);
    const cuda::Copy2D copy = ToHost(device.memory + 8, 1024, to.bytes, 100, 100, 500);
    const Result result = d.call().copy_2d(&copy, device.stream);
    d.call().stream_synchronize(device.stream);
    bool equal = true;
    for (size_t row = 0; row < 500; ++row) {
      equal = equal && std::memcmp(to.bytes + row * 100, from.bytes + 8 + row * 1024, 100) == 0;
    }
    return d.NameOf(result) + ", " + Equal(equal);
  });
  add("copy_rows_wider_than_their_pitch", [](const GpuDriver& d) {
    Device device(d);
    Pages to;
    const cuda::Copy2D copy = ToHost(device.memory, 64, to.bytes, 100, 100, 2);
    return d.NameOf(d.call().copy_2d(&copy, device.stream));
  });

  // Order.
  add("event_that_was_never_recorded", [](const GpuDriver& d) {
    cuda::Event event = nullptr;
    d.call().event_create(&event, cuda::kEventDisableTiming);
    const std::string result =
        d.NameOf(d.call().event_query(event)) + ", " + d.NameOf(d.call().event_synchronize(event));
    d.call().event_destroy(event);
    return result;
  });
  add("event_that_is_destroyed_while_a_stream_waits_for_it", [](const GpuDriver& d) {
    Device first(d), second(d);
    Pages from, to;
    from.Fill(5);
    cuda::Event event = nullptr;
    d.call().event_create(&event, cuda::kEventDisableTiming);
    d.call().copy_to_device(first.memory, from.bytes, kBytes, first.stream);
    d.call().event_record(event, first.stream);
    d.call().stream_wait_event(second.stream, event, 0);
    const Result destroyed = d.call().event_destroy(event);
    d.call().copy_to_host(to.bytes, first.memory, kBytes, second.stream);
    d.call().stream_synchronize(second.stream);
    return d.NameOf(destroyed) + ", " + Equal(from == to);
  });
  add("default_stream_comes_after_blocking_streams", [](const GpuDriver& d) {
    Device device(d, 0);
    Pages from, to;
    from.Fill(6);
    d.call().host_register(from.bytes, kBytes, cuda::kMemHostRegisterPortable);
    for (int i = 0; i < 20; ++i) d.call().copy_to_device(device.memory, from.bytes, kBytes, device.stream);
    d.call().copy_to_host(to.bytes, device.memory, kBytes, nullptr);
    d.call().stream_synchronize(nullptr);
    d.call().host_unregister(from.bytes);
    return Equal(from == to);
  });
  add("stream_that_captures_nothing", [](const GpuDriver& d) {
    Device device(d);
    int status = -1;
    const std::string result = d.NameOf(d.call().stream_is_capturing(device.stream, &status));
    return result + " " + std::to_string(status);
  });
  // torch captures in the global mode.
  add("capture_while_another_thread_asks_for_an_event",
      [](const GpuDriver& d) { return QueryWhileCapturing(d, cuda::kCaptureGlobal); });
  add("capture_while_a_relaxed_thread_asks_for_an_event",
      [](const GpuDriver& d) { return QueryWhileCapturing(d, cuda::kCaptureRelaxed); });
  add("capture_that_would_wait_for_what_it_does_not_record", [](const GpuDriver& d) {
    Device device(d), other(d);
    cuda::Event event = nullptr;
    d.call().event_create(&event, cuda::kEventDisableTiming);
    d.call().event_record(event, other.stream);
    d.call().stream_begin_capture(device.stream, cuda::kCaptureGlobal);
    const Result waited = d.call().stream_wait_event(device.stream, event, 0);
    const std::string ended = EndCapture(d, device.stream);
    d.call().event_destroy(event);
    return d.NameOf(waited) + ", " + ended;
  });
  add("default_stream_while_a_blocking_one_captures", [](const GpuDriver& d) {
    Device device(d, 0);
    int status = -1;
    d.call().stream_begin_capture(device.stream, cuda::kCaptureGlobal);
    const Result asked = d.call().stream_is_capturing(nullptr, &status);
    const Result own = d.call().stream_is_capturing(device.stream, &status);
    return d.NameOf(asked) + ", " + d.NameOf(own) + " " + std::to_string(status) + ", " + EndCapture(d, device.stream);
  });

  // These are about kernels.
  add("module_that_is_no_ptx", [](const GpuDriver& d) {
    cuda::Module module = nullptr;
    return d.NameOf(d.call().module_load(&module, "this is no PTX"));
  });
  add("module_without_such_a_kernel", [](const GpuDriver& d) {
    Kernel kernel(d);
    cuda::Function function = nullptr;
    return d.NameOf(kernel.loaded) + ", " +
           d.NameOf(d.call().module_get_function(&function, kernel.module, "cairn_no_such_kernel"));
  });
  add("kernel_that_is_launched_with_nothing", [](const GpuDriver& d) {
    Device device(d);
    Kernel kernel(d);
    return d.NameOf(kernel.Launch(device.memory, 0, 0, device.memory, device.stream));
  });
  // Sizes around rows and blocks, at addresses that are multiples of 16 and not.
  add("kernel_sums_as_the_host_does", [](const GpuDriver& d) {
    Device data(d), tables(d);
    Kernel kernel(d);
    Pages bytes, sums;
    bytes.Fill(7);
    std::vector<crc_lanes::Range> ranges;
    unsigned long long at = 0, blocks = 0;
    for (const unsigned long long size : {1, 511, 512, 513, 1024, 65535, 65536, 65537, 200000, 300001, 16, 4}) {
      ranges.push_back(
          {.address = data.memory + at, .bytes = size, .first_block = blocks, .block_bytes = crc_lanes::kBlockBytes});
      blocks += static_cast<unsigned long long>(CrcBlocksOf(static_cast<int64_t>(size)));
      at += size;
    }
    constexpr size_t kSums = kBytes / 2;  // where the sums lie
    d.call().copy_to_device(data.memory, bytes.bytes, kBytes, data.stream);
    d.call().copy_to_device(tables.memory, ranges.data(), ranges.size() * sizeof(ranges[0]), data.stream);
    const Result launched =
        kernel.Launch(tables.memory, static_cast<uint32_t>(ranges.size()), blocks, tables.memory + kSums, data.stream);
    d.call().copy_to_host(sums.bytes, tables.memory + kSums, blocks * sizeof(uint32_t), data.stream);
    const Result done = d.call().stream_synchronize(data.stream);
    bool equal = true;
    for (const crc_lanes::Range& range : ranges) {
      const auto* raw = reinterpret_cast<const uint32_t*>(sums.bytes) + range.first_block;
      equal = equal && Crc32cOfBlocks(raw, static_cast<int64_t>(range.bytes)) ==
                           Crc32c(bytes.bytes + (range.address - data.memory), range.bytes);
    }
    return d.NameOf(launched) + ", " + d.NameOf(done) + ", " + Equal(equal);
  });
  // The same with blocks of any size, as shards of a tensor have.
  add("kernel_of_fingerprints_sums_as_the_host_does", [](const GpuDriver& d) {
    Device data(d), tables(d);
    Kernel kernel(d, kCrc64KernelPtx, crc_lanes::Crc64::kKernelName);
    Pages bytes, sums;
    bytes.Fill(9);
    std::vector<crc_lanes::Range> ranges;
    unsigned long long at = 0, blocks = 0;
    for (const unsigned long long block : {1, 4, 16, 100, 511, 512, 513, 1024, 3000, 65535, 65536}) {
      const unsigned long long size = std::min<unsigned long long>(3 * block + block / 2, 70000);
      ranges.push_back({.address = data.memory + at, .bytes = size, .first_block = blocks, .block_bytes = block});
      blocks += (size + block - 1) / block;
      at += size;
    }
    constexpr size_t kSums = kBytes / 2;  // where the sums lie
    d.call().copy_to_device(data.memory, bytes.bytes, kBytes, data.stream);
    d.call().copy_to_device(tables.memory, ranges.data(), ranges.size() * sizeof(ranges[0]), data.stream);
    const Result launched =
        kernel.Launch(tables.memory, static_cast<uint32_t>(ranges.size()), blocks, tables.memory + kSums, data.stream);
    d.call().copy_to_host(sums.bytes, tables.memory + kSums, blocks * sizeof(uint64_t), data.stream);
    const Result done = d.call().stream_synchronize(data.stream);
    bool equal = true;
    const auto* sum = reinterpret_cast<const uint64_t*>(sums.bytes);
    for (const crc_lanes::Range& range : ranges) {
      const char* from = bytes.bytes + (range.address - data.memory);
      for (unsigned long long offset = 0; offset < range.bytes; offset += range.block_bytes) {
        const auto size = std::min(range.block_bytes, range.bytes - offset);
        equal = equal && *sum++ == ExtendRemainder64(0, from + offset, size);
      }
    }
    return d.NameOf(launched) + ", " + d.NameOf(done) + ", " + Equal(equal);
  });
  add("handle_types_of_plain_memory", [](const GpuDriver& d) {
    Device device(d);
    unsigned long long types = 99;
    const std::string result =
        d.NameOf(d.call().pointer_get_attribute(&types, cuda::kPointerAllowedHandleTypes, device.memory));
    return result + " " + std::to_string(types);
  });
  add("stream_without_work", [](const GpuDriver& d) {
    Device device(d);
    return d.NameOf(d.call().stream_query(device.stream));
  });
  AddSharingCases(cases);
  return cases;
}

}  // namespace

const std::vector<ContractCase>& ContractCases() {
  static const std::vector<ContractCase>& cases = *new std::vector<ContractCase>(Cases());
  return cases;
}

}  // namespace cairn
