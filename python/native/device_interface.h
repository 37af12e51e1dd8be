// Is the C interface to DeviceStaging, for Python.
#ifndef CAIRN_PYTHON_NATIVE_DEVICE_INTERFACE_H_
#define CAIRN_PYTHON_NATIVE_DEVICE_INTERFACE_H_

#include <cstdint>

#include "python/native/copy_table.h"

extern "C" {

// As DeviceOutcome. Texts are cut to fit and end with a zero. The kind -1 says that copy `index` is not sound: it
// leaves its source or target, has a negative stride on the device, or repeats the device's elements as targets.
struct CairnDeviceOutcome {
  int64_t kind;
  int64_t index;
  int64_t path;
  int64_t bytes;
  int64_t calls;
  int64_t pinned_bytes;
  char text[256];
  char fallback[256];
  int64_t checked;
  char unchecked[256];
};

// Writes TextOf(ProbeGpu(path, bytes)) to `text`, cut to fit, with a zero at its end. Returns 1 if there is a driver.
int64_t cairn_device_probe(const char* path, int64_t bytes, char* text, int64_t size);

// Returns what the memory at an address can be exported as: 1 a descriptor, 8 a fabric handle, 0 neither; -1 if the
// driver does not say.
int64_t cairn_device_handle_types(void* staging, uint64_t address);

// Opens the driver and returns a DeviceStaging; null, with the reason in `outcome`, if there is no driver.
void* cairn_device_open(const char* path, int64_t slot_bytes, struct CairnDeviceOutcome* outcome);
void cairn_device_close(void* staging);
// 1 if work from before has not ended, so that memory it was given must stay.
int64_t cairn_device_busy(void* staging);

// Returns on which device an address is; -1 for none.
int64_t cairn_device_of(void* staging, uint64_t address);

void cairn_device_pin(void* staging, int64_t device, void* memory, int64_t bytes, int64_t piece_bytes, double seconds,
                      struct CairnDeviceOutcome* outcome);
void cairn_device_unpin(void* staging, void* memory, double seconds, struct CairnDeviceOutcome* outcome);

// Makes copies as cairn_copy does. `to_host` says which side is the device's. `streams` has one for each copy.
void cairn_device_copy(void* staging, int64_t to_host, const struct CairnCopy* copies, int64_t count,
                       const int64_t* dimensions, const uint64_t* streams, int64_t threads, double seconds,
                       struct CairnDeviceOutcome* outcome);

// Sums the sources of copies, which must be packed. Their targets are not looked at.
void cairn_device_checksum(void* staging, const struct CairnCopy* copies, int64_t count, const int64_t* dimensions,
                           const uint64_t* streams, double seconds, uint32_t* checksums,
                           struct CairnDeviceOutcome* outcome);

// See DeviceStaging::Overlap. `behind` has a 1 for each copy of an array that only guarded updates change; one that is
// not packed on both sides is copied at once all the same. Returns null if it has not begun; `outcome` says why.
void* cairn_overlap_begin(void* staging, const struct CairnCopy* copies, int64_t count, const int64_t* dimensions,
                          const uint64_t* streams, const uint8_t* behind, int64_t check, int64_t chunk_bytes,
                          int64_t threads, double seconds, struct CairnDeviceOutcome* outcome);

// Lets streams wait for the copies: streams[i] of the device ordinals[i], and the default streams of other devices.
// Returns 0 if the time has passed, and the save will fail.
int64_t cairn_overlap_guard(void* overlap, const int64_t* ordinals, const uint64_t* streams, int64_t count,
                            double seconds);

// Returns 0 if the time has passed before all was copied and checked; `outcome` is not set then.
int64_t cairn_overlap_await(void* overlap, double seconds, struct CairnDeviceOutcome* outcome);

// May come before the end. Nothing else may be called then.
void cairn_overlap_free(void* overlap);

}  // extern "C"

#endif  // CAIRN_PYTHON_NATIVE_DEVICE_INTERFACE_H_
