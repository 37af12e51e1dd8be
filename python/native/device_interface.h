// Is the C interface to DeviceStaging, for Python.
#ifndef CAIRN_PYTHON_NATIVE_DEVICE_INTERFACE_H_
#define CAIRN_PYTHON_NATIVE_DEVICE_INTERFACE_H_

#include <cstdint>

#include "python/native/copy_table.h"

extern "C" {

// Says what DeviceOutcome says. Texts are cut to fit and end with a zero. The kind -1 says that copy `index` is not
// valid: it leaves its source or target, has a negative stride on the device, or repeats the device's elements as
// targets. `reordered` is the first copy that took another path than the others.
struct CairnDeviceOutcome {
  int64_t kind;
  int64_t index;
  int64_t path;
  int64_t bytes;
  int64_t detour_bytes;
  int64_t reordered;
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

// Opens the driver and returns a DeviceStaging; null, with the reason in `outcome`, if there is no driver, or if it has
// not started within so many seconds.
void* cairn_device_open(const char* path, int64_t slot_bytes, double seconds, struct CairnDeviceOutcome* outcome);
// Returns 1 if all memory and streams are given up. Returns 0 if that is done only when the driver goes on; then the
// handle is still good for cairn_device_release and cairn_device_releasing, and is never freed.
int64_t cairn_device_close(void* staging);
// 1 if work from before has not ended, so that memory it was given must stay.
int64_t cairn_device_busy(void* staging);
// Writes what the driver has not done yet to `text`, cut to fit, with a zero at its end; "" if nothing runs.
void cairn_device_waiting(void* staging, char* text, int64_t size);

// Sets `device` to that of the first address that is on one; to -1 if none is.
void cairn_device_locate(void* staging, const uint64_t* addresses, int64_t count, double seconds, int64_t* device,
                         struct CairnDeviceOutcome* outcome);

// See DeviceStaging::Pin. The memory must be given to cairn_device_release, whatever the outcome is.
void cairn_device_pin(void* staging, uint64_t number, int64_t device, void* memory, int64_t bytes, int64_t piece_bytes,
                      double seconds, struct CairnDeviceOutcome* outcome);
// Unpins and unmaps memory, at once or when what runs has ended. Waits so many seconds at most.
void cairn_device_release(void* staging, uint64_t number, void* memory, int64_t bytes, double seconds);
// 1 if there is memory that cairn_device_release has not unmapped yet.
int64_t cairn_device_releasing(void* staging);

// Makes copies as cairn_copy does. `to_host` says which side is the device's. `streams` has one for each copy. `pinned`
// is the number under which the host's memory was pinned, or 0.
void cairn_device_copy(void* staging, int64_t to_host, uint64_t pinned, const struct CairnCopy* copies, int64_t count,
                       const int64_t* dimensions, const uint64_t* streams, int64_t threads, double seconds,
                       struct CairnDeviceOutcome* outcome);

// Sums the sources of copies, which must be packed. Their targets are not looked at.
void cairn_device_checksum(void* staging, const struct CairnCopy* copies, int64_t count, const int64_t* dimensions,
                           const uint64_t* streams, double seconds, uint32_t* checksums,
                           struct CairnDeviceOutcome* outcome);

// Computes the parts of fingerprints that the sources of copies make, which must be packed. `boxes` is that of
// cairn_fingerprint. Their targets are not looked at.
void cairn_device_fingerprint(void* staging, const struct CairnCopy* copies, int64_t count, const int64_t* dimensions,
                              const uint64_t* streams, const int64_t* boxes, double seconds, uint64_t* parts,
                              struct CairnDeviceOutcome* outcome);

// As SharedBlock. The text is cut to fit and ends with a zero.
struct CairnDeviceBlock {
  int64_t kind;
  uint64_t begin;
  uint64_t bytes;
  uint64_t handle;
  char ipc[64];
  char uuid[16];
  char why[112];
};

// See DeviceStaging::FindBlocks. Returns what the next three calls take, which cairn_blocks_free frees; null if it has
// failed.
void* cairn_blocks_find(void* staging, const struct CairnCopy* arrays, int64_t count, const int64_t* dimensions,
                        const uint64_t* streams, double seconds, struct CairnDeviceOutcome* outcome);
int64_t cairn_blocks_count(void* blocks);
const struct CairnDeviceBlock* cairn_blocks_data(void* blocks);
void cairn_blocks_free(void* blocks);
// See DeviceStaging::Export. The caller closes the files.
void cairn_blocks_export(void* staging, const uint64_t* handles, int64_t count, double seconds, int32_t* files,
                         struct CairnDeviceOutcome* outcome);
// See DeviceStaging::ForgetBlocks.
void cairn_blocks_forget(void* staging, double seconds, struct CairnDeviceOutcome* outcome);

// See DeviceStaging::Overlap. `behind` has a 1 for each copy of an array that only guarded updates change; one that is
// not packed on both sides is copied at once all the same. Returns null if it has not begun; `outcome` says why.
void* cairn_overlap_begin(void* staging, uint64_t pinned, const struct CairnCopy* copies, int64_t count,
                          const int64_t* dimensions, const uint64_t* streams, const uint8_t* behind, int64_t check,
                          int64_t chunk_bytes, int64_t threads, double seconds, struct CairnDeviceOutcome* outcome);

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
