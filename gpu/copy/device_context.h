// Objects of CUDA's driver with their owners: contexts and streams, events, pinned memory, and the ring of two buffers.
#ifndef CAIRN_GPU_COPY_DEVICE_CONTEXT_H_
#define CAIRN_GPU_COPY_DEVICE_CONTEXT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpu/copy/transfer.h"
#include "gpu/driver/driver.h"

namespace cairn {

// A call of the driver that failed.
struct DriverFailure {
  std::string text;
};

// Throws DriverFailure, "CALL: RESULT", unless the result is success.
void Require(const GpuDriver& driver, cuda::Result result, const char* call);

// Allows this thread to call the driver while another thread captures a CUDA graph. Without this, such a call makes the
// capture fail. Throws DriverFailure.
void RelaxCapture(const GpuDriver& driver);

// The primary context of one device, which the trainer's libraries use too, and a stream of Cairn's own in it.
class DeviceContext {
 public:
  // Throws DriverFailure.
  DeviceContext(const GpuDriver& driver, int ordinal);
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  cuda::Stream stream() const { return stream_; }
  cuda::Context context() const { return context_; }
  int ordinal() const { return ordinal_; }

 private:
  const GpuDriver& driver_;
  const int ordinal_;
  cuda::Device device_ = 0;
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
};

// Makes a context current in this thread while it lives.
class CurrentContext {
 public:
  CurrentContext(const GpuDriver& driver, const DeviceContext& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const GpuDriver& driver_;
};

// A CUDA event. Its context must be current when it is made and when it is destroyed.
class DeviceEvent {
 public:
  explicit DeviceEvent(const GpuDriver& driver);
  ~DeviceEvent();
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;

  void Record(cuda::Stream stream) { Require(driver_, driver_.call().event_record(event_, stream), "cuEventRecord"); }
  void Await() { Require(driver_, driver_.call().event_synchronize(event_), "cuEventSynchronize"); }
  cuda::Event event() const { return event_; }

 private:
  const GpuDriver& driver_;
  cuda::Event event_ = nullptr;
};

// Pins host memory in pieces. The caller identifies memory by a number that is never used for other memory. (An address
// would not do: memory that is mapped later may have the same address.) A context must be current in all calls that pin
// or unpin.
class PinnedMemory {
 public:
  explicit PinnedMemory(const GpuDriver& driver) : driver_(driver) {}

  // Pins the memory; does nothing if it is already pinned under this number. Throws DriverFailure; then no part of the
  // memory is pinned, and WhyNot() returns the reason.
  void Pin(uint64_t number, char* memory, int64_t bytes, int64_t piece_bytes);
  // Does nothing if no memory is pinned under this number.
  void Unpin(uint64_t number);
  void UnpinAll();
  bool Holds(uint64_t number, const void* memory, int64_t bytes) const;
  // Returns why no memory is pinned under this number.
  std::string WhyNot(uint64_t number) const;
  // Returns the number of bytes from this address to the end of its piece. Holds() must be true for the memory.
  int64_t BytesToSeam(uint64_t number, const void* memory) const;
  // Splits rows at the borders of pieces, because the driver refuses a copy across two pieces. The packed bytes must be
  // held.
  std::vector<DeviceRows> Cut(uint64_t number, const std::vector<DeviceRows>& rows, const std::byte* packed) const;
  bool empty() const { return pieces_.empty(); }
  int64_t bytes() const { return bytes_; }

 private:
  const GpuDriver& driver_;
  std::map<uint64_t, std::vector<std::pair<char*, int64_t>>> pieces_;
  std::map<uint64_t, std::string> refused_;
  std::atomic<int64_t> bytes_{0};
};

// Two host buffers through which copies pass. A context must be current in all calls.
class StagingRing {
 public:
  StagingRing(const GpuDriver& driver, int64_t slot_bytes) : driver_(driver), slot_bytes_(slot_bytes) {}

  // Makes the buffers if they do not exist. Returns why they are not pinned; "" if they are pinned.
  const std::string& Make();
  void Free();
  bool pinned() const { return pinned_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t pinned_bytes() const { return pinned_ ? 2 * slot_bytes_ : 0; }
  std::byte* slot(size_t index) const { return slots_[index]; }

 private:
  const GpuDriver& driver_;
  const int64_t slot_bytes_;
  std::array<std::byte*, 2> slots_ = {};
  std::vector<std::byte> plain_;
  std::atomic<bool> pinned_{false};
  std::string why_;
};

// Enqueues copies of `rows` between the device and `packed`, host memory in which the rows are packed. Returns the
// number of driver calls. Throws DriverFailure.
int64_t EnqueueRows(const GpuDriver& driver, cuda::Stream stream, const std::vector<DeviceRows>& rows, bool to_host,
                    std::byte* packed);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_DEVICE_CONTEXT_H_
