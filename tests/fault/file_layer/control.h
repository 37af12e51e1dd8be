// The page that a sweep of faults shares with the processes that it tests. The sweep says there which call of which
// process goes wrong, and how; the processes count their calls there, and say what the fault has met.
#ifndef CAIRN_TESTS_FAULT_FILE_LAYER_CONTROL_H_
#define CAIRN_TESTS_FAULT_FILE_LAYER_CONTROL_H_

#include <atomic>
#include <cstdint>
#include <string>

namespace cairn::testing {

// The numbers are those of tests/fault/sweep/control.py.
enum class Kind : uint32_t {
  kOpen,
  kCreate,
  kRead,
  kWrite,
  kSync,
  kLink,
  kRename,
  kUnlink,
  kMakeDirectory,
  kRemoveDirectory,
  kTruncate,
  kAllocate,
  kList,
  kLook,
  kClose,
  kSend,
};

enum class Action : uint32_t {
  kNothing,
  kKillBefore,
  kKillMiddle,  // after one half of the bytes, where the call has bytes; else after it
  kKillAfter,
  kFail,      // with an errno that the call can give, once
  kFailFrom,  // the same, and so does every later call of its kind
  kLie,       // the call is made, and fails with an errno all the same
  kShort,     // one half of the bytes are transferred; calls without bytes fail
  kFreeze,    // the process stops itself before the call
};

// One process. The name tells which one: "coordinator", "agent-3", or "command".
struct Slot {
  static constexpr size_t kNameSize = 32, kTextSize = 468;
  char name[kNameSize];
  std::atomic<uint32_t> calls;  // counted while the page is armed
  uint32_t at;                  // the call that goes wrong, from 1; 0: none
  Action action;
  uint32_t choice;              // which errno
  std::atomic<uint32_t> fired;  // 0, or the kind of the call that went wrong + 1
  uint32_t sends;               // 1: messages to other processes are counted as well
  char met[kTextSize];          // the call that went wrong: its name, its errno, its path
};

struct Page {
  static constexpr uint32_t kMagic = 0x43464c31;
  static constexpr int kSlots = 16;
  uint32_t magic;
  std::atomic<uint32_t> armed;
  uint32_t locks_for_all;            // 1: flock succeeds for everybody
  std::atomic<uint32_t> record;      // 1: what changes files goes into the record
  std::atomic<int32_t> record_turn;  // the thread that makes the next record; 0: none
  uint32_t unused[11];
  Slot slots[kSlots];
};
static_assert(sizeof(Slot) == 520 + 4 && sizeof(Page) == 64 + Page::kSlots * sizeof(Slot));

// What a call is to do. The caller gives it to Before, makes its call as this says, and gives it to After.
struct Fault {
  Action action = Action::kNothing;
  int error = 0;
};

// The page of this process, or null where no sweep runs.
Page* SharedPage();
// Whether a path lies in the directory that is swept.
bool Swept(const std::string& path);
std::string PathOf(int fd);
// The path that a call means by a directory and a name.
std::string PathIn(int directory, const char* name);

// Counts a call on `path`. It ends the process, or stops it, if this is what goes wrong.
Fault Meet(Kind kind, const char* call, const std::string& path);
[[noreturn]] void Die();

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_FAULT_FILE_LAYER_CONTROL_H_
