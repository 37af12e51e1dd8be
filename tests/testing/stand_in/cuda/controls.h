// By these functions tests set what the stand-in for CUDA's driver does, and ask it. A test gets them by dlsym.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_CUDA_CONTROLS_H_
#define CAIRN_TESTS_TESTING_STAND_IN_CUDA_CONTROLS_H_

#include <cstdint>

// A process that no test controls, such as a worker, takes settings at its cuInit from the file that the environment's
// STAND_IN_CUDA names. Its lines are "set NAME VALUE", "fail FUNCTION NTH RESULT" and "hang FUNCTION".

extern "C" {

// Sets a number. Returns -1 for a name that it does not have.
//   devices            how many devices there are (2)
//   device_bytes       memory of each device; more is out of memory (1 GiB)
//   pinnable_bytes     host memory that may be registered or allocated at one time (1 GiB)
//   bytes_per_second   speed of a copy; 0: as fast as the host copies (0)
//   copy_delay_us      time before each copy (0)
//   engine_stopped     1: copies that are queued do not begin until it is 0 again; 2: only those to the host (0)
//   first_device       the machine's number of the first device, as of a process that does not see all of them (0)
//   fabric             1: memory can be handed on by fabric handles, whose channel this process may use (0)
//   broken             a result that every call returns from then on, as after a fault of a kernel (0)
int64_t cairn_stand_in_set(const char* name, int64_t value);

// Makes the `nth` next call of `function` (1: the next one) return `result` and do nothing.
void cairn_stand_in_fail(const char* function, int64_t nth, int64_t result);

// Makes calls of `function` block; null lets all go on.
void cairn_stand_in_hang(const char* function);

// Returns how often a function was called, or one of:
//   lent_bytes                       of the devices' memory that was taken here, what other processes hold
//   imported_bytes                   of memory of other processes that is held here
//   handles, reservations            that there are now
//   bytes_to_host, bytes_to_device   copied so far
//   registered_bytes, allocated_host_bytes, used_device_bytes, contexts, streams, events, modules   that there are now
//   hanging                          calls that block now
int64_t cairn_stand_in_count(const char* name);

// Returns where the host can read and write the device memory at an address; null if there is none.
void* cairn_stand_in_alias(unsigned long long device);

// Adds work to a stream. Returns false if there is no such stream. The stand-in for NCCL calls it, because it works in
// streams and on memory of this one.
bool cairn_stand_in_enqueue(void* stream, void (*work)(void*), void* argument);
// Returns where the host can reach these bytes; null unless they are a device's memory or pinned memory of the host.
void* cairn_stand_in_reach(const void* address, uint64_t bytes);
// Returns the device whose context is current in this thread; -1 for none.
int64_t cairn_stand_in_current_device();

// Sets all settings and all counts of calls back to the beginning. Allocated memory stays.
void cairn_stand_in_reset();

// Says that this library is the stand-in.
extern const int cairn_stand_in;

}  // extern "C"

#endif  // CAIRN_TESTS_TESTING_STAND_IN_CUDA_CONTROLS_H_
