#include "tests/gpu/sharing_cases.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

namespace cairn {
namespace {

using cuda::DevicePointer;
using cuda::Result;

// The descriptor by which the other process gets memory.
constexpr int kMemory = 3;

char Pattern(size_t at) { return static_cast<char>(at * 37 + 11); }

size_t Granularity(const GpuDriver& driver, const cuda::AllocationProperties& properties) {
  size_t granularity = 0;
  if (driver.call().memory_get_granularity(&granularity, &properties, cuda::kGranularityMinimum) != cuda::kSuccess ||
      granularity == 0) {
    std::abort();
  }
  return granularity;
}

// Reserved addresses with memory behind their begin.
struct Mapped {
  Mapped(const GpuDriver& driver, cuda::AllocationHandle given, size_t size, int access, size_t reserved = 0)
      : call(driver.call()), handle(given), bytes(size), reserved_bytes(reserved == 0 ? size : reserved) {
    if (call.address_reserve(&address, reserved_bytes, 0, 0, 0) != cuda::kSuccess) std::abort();
    result = call.memory_map(address, bytes, 0, handle, 0);
    const cuda::MemoryAccess allowed = {.location = {}, .flags = access};
    if (result == cuda::kSuccess) result = call.memory_set_access(address, bytes, &allowed, 1);
  }
  ~Mapped() {
    call.memory_unmap(address, bytes);
    call.address_free(address, reserved_bytes);
  }
  const cuda::Functions& call;
  const cuda::AllocationHandle handle;
  const size_t bytes, reserved_bytes;
  DevicePointer address = 0;
  Result result = cuda::kSuccess;
};

// Memory made by a handle.
struct Made {
  explicit Made(const GpuDriver& driver, unsigned long long types = cuda::kHandlePosix) : call(driver.call()) {
    properties.handle_types = static_cast<int>(types);
    bytes = Granularity(driver, properties);
    if (call.memory_create(&handle, bytes, &properties, 0) != cuda::kSuccess) std::abort();
  }
  ~Made() {
    if (handle != 0) call.memory_release(handle);
  }
  const cuda::Functions& call;
  cuda::AllocationProperties properties;
  size_t bytes = 0;
  cuda::AllocationHandle handle = 0;
};

Result Fill(const GpuDriver& driver, DevicePointer memory, size_t bytes) {
  std::vector<char> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = Pattern(i);
  const Result copied = driver.call().copy_to_device(memory, pattern.data(), bytes, nullptr);
  const Result waited = driver.call().stream_synchronize(nullptr);
  return copied == cuda::kSuccess ? waited : copied;
}

std::string Compare(const GpuDriver& driver, DevicePointer memory, size_t bytes) {
  std::vector<char> found(bytes);
  const Result copied = driver.call().copy_to_host(found.data(), memory, bytes, nullptr);
  const Result waited = driver.call().stream_synchronize(nullptr);
  if (copied != cuda::kSuccess || waited != cuda::kSuccess) {
    return driver.NameOf(copied) + ", " + driver.NameOf(waited);
  }
  for (size_t i = 0; i < bytes; ++i) {
    if (found[i] != Pattern(i)) return "bytes differ";
  }
  return "bytes equal";
}

// Starts this program again, and returns what it prints. `memory` is its descriptor kMemory; its input is `input`.
std::string InAnotherProcess(const std::string& what, int memory, const std::string& input) {
  std::ifstream file("/proc/self/cmdline");
  const std::string line((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> arguments;
  for (size_t at = 0; at < line.size(); at += arguments.back().size() + 1) arguments.emplace_back(line.c_str() + at);
  arguments.push_back("--child=" + what);
  int in[2], out[2];
  if (pipe(in) != 0 || pipe(out) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    if (memory >= 0 && memory != kMemory) dup2(memory, kMemory);
    if (memory == kMemory) fcntl(kMemory, F_SETFD, 0);
    for (const int end : {in[1], out[0]}) fcntl(end, F_SETFD, FD_CLOEXEC);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  if (write(in[1], input.data(), input.size()) != static_cast<ssize_t>(input.size())) std::abort();
  close(in[1]);
  std::string printed;
  char buffer[256];
  for (ssize_t got = 0; (got = read(out[0], buffer, sizeof buffer)) > 0;) {
    printed.append(buffer, static_cast<size_t>(got));
  }
  close(out[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? printed : printed + " (the other process has failed)";
}

int Export(const GpuDriver& driver, cuda::AllocationHandle handle) {
  int file = -1;
  const Result result = driver.call().memory_export(&file, handle, static_cast<int>(cuda::kHandlePosix), 0);
  return result == cuda::kSuccess ? file : -1;
}

std::string Range(const GpuDriver& driver, DevicePointer address, DevicePointer base, size_t bytes) {
  DevicePointer begin = 0;
  size_t size = 0;
  const Result result = driver.call().memory_get_range(&begin, &size, address);
  if (result != cuda::kSuccess) return driver.NameOf(result);
  return std::string(begin == base ? "its begin" : "another begin") + ", " +
         (size == bytes ? "its size" : "another size");
}

std::string Types(const GpuDriver& driver, DevicePointer address) {
  unsigned long long types = 99;
  int legacy = -1;
  const Result result = driver.call().pointer_get_attribute(&types, cuda::kPointerAllowedHandleTypes, address);
  const Result asked = driver.call().pointer_get_attribute(&legacy, cuda::kPointerLegacyIpcCapable, address);
  return driver.NameOf(result) + " " + std::to_string(types) + ", " + driver.NameOf(asked) + " " +
         std::to_string(legacy);
}

}  // namespace

void AddSharingCases(std::vector<ContractCase>& cases) {
  const auto add = [&](const char* name, std::function<std::string(const GpuDriver&)> run) {
    cases.push_back({name, [run = std::move(run)](const GpuDriver& driver) {
                       return driver.shares_memory() ? run(driver) : "the driver has no such calls";
                     }});
  };
  add("sharing_range_of_plain_memory", [](const GpuDriver& d) {
    DevicePointer memory = 0;
    d.call().memory_allocate(&memory, 10000);
    const std::string result = Range(d, memory + 5000, memory, 10000);
    d.call().memory_free(memory);
    return result;
  });
  // The driver names the piece in which a large array begins, not all of the addresses that were reserved.
  add("sharing_range_of_one_of_two_mappings", [](const GpuDriver& d) {
    const Made first(d), second(d);
    const Mapped mapped(d, first.handle, first.bytes, cuda::kAccessReadWrite, 2 * first.bytes);
    d.call().memory_map(mapped.address + first.bytes, second.bytes, 0, second.handle, 0);
    const cuda::MemoryAccess allowed = {.location = {}, .flags = cuda::kAccessReadWrite};
    d.call().memory_set_access(mapped.address + first.bytes, second.bytes, &allowed, 1);
    const std::string result = Range(d, mapped.address + first.bytes + 100, mapped.address + first.bytes, second.bytes);
    d.call().memory_unmap(mapped.address + first.bytes, second.bytes);
    return result;
  });
  add("sharing_range_of_what_is_mapped_without_access", [](const GpuDriver& d) {
    const Made made(d), other(d);
    const Mapped mapped(d, made.handle, made.bytes, cuda::kAccessReadWrite, 2 * made.bytes);
    d.call().memory_map(mapped.address + made.bytes, other.bytes, 0, other.handle, 0);
    const std::string result = Range(d, mapped.address + made.bytes, mapped.address + made.bytes, other.bytes);
    d.call().memory_unmap(mapped.address + made.bytes, other.bytes);
    return result;
  });
  add("sharing_handle_types_of_memory_by_handle", [](const GpuDriver& d) {
    const Made made(d);
    const Mapped mapped(d, made.handle, made.bytes, cuda::kAccessReadWrite);
    return Types(d, mapped.address + 100);
  });
  add("sharing_handle_types_of_memory_that_is_not_exportable", [](const GpuDriver& d) {
    const Made made(d, 0);
    const Mapped mapped(d, made.handle, made.bytes, cuda::kAccessReadWrite);
    return Types(d, mapped.address) + ", " + (Export(d, made.handle) < 0 ? "refused" : "exported");
  });
  add("sharing_handle_types_of_plain_memory", [](const GpuDriver& d) {
    DevicePointer memory = 0;
    d.call().memory_allocate(&memory, 10000);
    const std::string result = Types(d, memory);
    d.call().memory_free(memory);
    return result;
  });
  add("sharing_retain_gives_the_handle_that_was_mapped", [](const GpuDriver& d) {
    const Made made(d);
    const Mapped mapped(d, made.handle, made.bytes, cuda::kAccessReadWrite);
    cuda::AllocationHandle found = 0;
    const Result result = d.call().memory_retain(&found, reinterpret_cast<void*>(mapped.address + 4096));
    if (result == cuda::kSuccess) d.call().memory_release(found);
    return d.NameOf(result) + ", " + (found == made.handle ? "the same" : "another");
  });
  add("sharing_retain_plain_memory", [](const GpuDriver& d) {
    DevicePointer memory = 0;
    d.call().memory_allocate(&memory, 10000);
    cuda::AllocationHandle found = 0;
    const Result result = d.call().memory_retain(&found, reinterpret_cast<void*>(memory));
    if (result == cuda::kSuccess) d.call().memory_release(found);
    d.call().memory_free(memory);
    return std::string(result == cuda::kSuccess ? "retained" : "refused");
  });
  add("sharing_copy_over_the_seam_of_two_mappings", [](const GpuDriver& d) {
    const Made first(d), second(d);
    const Mapped mapped(d, first.handle, first.bytes, cuda::kAccessReadWrite, 2 * first.bytes);
    const cuda::MemoryAccess access = {.location = {}, .flags = cuda::kAccessReadWrite};
    d.call().memory_map(mapped.address + first.bytes, second.bytes, 0, second.handle, 0);
    d.call().memory_set_access(mapped.address + first.bytes, second.bytes, &access, 1);
    const Result filled = Fill(d, mapped.address, 2 * first.bytes);
    const std::string result = d.NameOf(filled) + ", " + Compare(d, mapped.address, 2 * first.bytes);
    d.call().memory_unmap(mapped.address + first.bytes, second.bytes);
    return result;
  });
  add("sharing_map_more_than_there_is", [](const GpuDriver& d) {
    const Made made(d);
    DevicePointer address = 0;
    d.call().address_reserve(&address, 2 * made.bytes, 0, 0, 0);
    const Result result = d.call().memory_map(address, 2 * made.bytes, 0, made.handle, 0);
    if (result == cuda::kSuccess) d.call().memory_unmap(address, 2 * made.bytes);
    d.call().address_free(address, 2 * made.bytes);
    return std::string(result == cuda::kSuccess ? "mapped" : "refused");
  });
  add("sharing_import_what_is_no_memory", [](const GpuDriver& d) {
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    cuda::AllocationHandle handle = 0;
    const Result result = d.call().memory_import(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                                 static_cast<int>(cuda::kHandlePosix));
    close(file);
    if (result == cuda::kSuccess) d.call().memory_release(handle);
    return std::string(result == cuda::kSuccess ? "imported" : "refused");
  });
  add("sharing_import_in_another_process", [](const GpuDriver& d) {
    const Made made(d);
    const Mapped mapped(d, made.handle, made.bytes, cuda::kAccessReadWrite);
    Fill(d, mapped.address, made.bytes);
    const int file = Export(d, made.handle);
    const std::string result = InAnotherProcess("import", file, std::to_string(made.bytes));
    close(file);
    return result;
  });
  add("sharing_write_to_what_is_mapped_read_only", [](const GpuDriver& d) {
    const Made made(d);
    const int file = Export(d, made.handle);
    const std::string result = InAnotherProcess("write", file, std::to_string(made.bytes));
    close(file);
    return result;
  });
  add("sharing_imported_memory_outlives_its_maker", [](const GpuDriver& d) {
    int file = -1;
    size_t bytes = 0;
    {
      const Made made(d);
      const Mapped mapped(d, made.handle, made.bytes, cuda::kAccessReadWrite);
      Fill(d, mapped.address, made.bytes);
      file = Export(d, made.handle);
      bytes = made.bytes;
    }
    const std::string result = InAnotherProcess("import", file, std::to_string(bytes));
    close(file);
    return result;
  });
  add("sharing_ipc_in_another_process", [](const GpuDriver& d) {
    DevicePointer memory = 0;
    constexpr size_t kBytes = 100'000;
    d.call().memory_allocate(&memory, kBytes);
    Fill(d, memory, kBytes);
    cuda::IpcMemoryHandle handle;
    const Result got = d.call().ipc_get_memory(&handle, memory);
    const std::string input = std::string(handle.bytes, sizeof handle.bytes) + std::to_string(kBytes);
    const std::string result = d.NameOf(got) + ", " + InAnotherProcess("ipc", -1, input);
    d.call().memory_free(memory);
    return result;
  });
  add("sharing_ipc_of_memory_by_handle", [](const GpuDriver& d) {
    const Made made(d);
    const Mapped mapped(d, made.handle, made.bytes, cuda::kAccessReadWrite);
    cuda::IpcMemoryHandle handle;
    return d.NameOf(d.call().ipc_get_memory(&handle, mapped.address));
  });
  add("sharing_ipc_in_the_same_process", [](const GpuDriver& d) {
    DevicePointer memory = 0, again = 0;
    d.call().memory_allocate(&memory, 10000);
    cuda::IpcMemoryHandle handle;
    d.call().ipc_get_memory(&handle, memory);
    const Result opened = d.call().ipc_open_memory(&again, handle, cuda::kIpcLazyPeerAccess);
    d.call().memory_free(memory);
    return d.NameOf(opened);
  });
}

int RunChild(const GpuDriver& driver, const std::string& what) {
  const std::string input((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  const cuda::Functions& call = driver.call();
  if (what == "ipc") {
    cuda::IpcMemoryHandle handle;
    std::memcpy(handle.bytes, input.data(), sizeof handle.bytes);
    DevicePointer memory = 0;
    const Result opened = call.ipc_open_memory(&memory, handle, cuda::kIpcLazyPeerAccess);
    std::cout << driver.NameOf(opened);
    if (opened != cuda::kSuccess) return 0;
    std::cout << ", " << Compare(driver, memory, std::stoul(input.substr(sizeof handle.bytes)));
    std::cout << ", " << driver.NameOf(call.ipc_close_memory(memory)) << std::flush;
    return 0;
  }
  cuda::AllocationHandle handle = 0;
  const Result imported = call.memory_import(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(kMemory)),
                                             static_cast<int>(cuda::kHandlePosix));
  std::cout << driver.NameOf(imported);
  if (imported != cuda::kSuccess) return 0;
  close(kMemory);
  cuda::AllocationProperties properties;
  call.memory_get_properties(&properties, handle);
  const size_t bytes = std::stoul(input);
  const Mapped mapped(driver, handle, bytes, cuda::kAccessRead);
  call.memory_release(handle);
  std::cout << ", device " << properties.location.device << ", " << driver.NameOf(mapped.result) << ", ";
  if (what == "write") {
    std::cout << (Fill(driver, mapped.address, bytes) == cuda::kSuccess ? "written" : "refused");
  } else {
    std::cout << Compare(driver, mapped.address, bytes);
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace cairn
