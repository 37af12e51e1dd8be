#include "agent/staging/control_page.h"

#include <atomic>
#include <utility>

#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kMagic = 0;
constexpr size_t kReported = 8;
constexpr size_t kOrder = 16;
constexpr size_t kGivenUp = 24;
constexpr size_t kReplaced = 32;
constexpr size_t kStaging = 40;
constexpr size_t kStagedBytes = 48;
constexpr uint64_t kArmed = 1;
constexpr uint64_t kAgreed = 2;

// Accesses are sequentially consistent, with a full fence after each write. Agent and trainer each write one word and
// then read the other's; at least one of the two must see the other's write (Dekker).
uint64_t Read(uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_seq_cst); }
void Write(uint64_t& word, uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlPage>> ControlPage::Create() {
  CAIRN_ASSIGN_OR_RETURN(auto memory, SharedMemory::Create("cairn-control", kControlPageBytes));
  return std::unique_ptr<ControlPage>(new ControlPage(std::move(memory)));
}

ControlPage::ControlPage(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {
  Write(Word(kMagic), kControlPageMagic);
}

uint64_t& ControlPage::Word(size_t offset) const {
  return *reinterpret_cast<uint64_t*>(memory_->data() + offset);  // page-aligned; x86-64 and arm64 are little-endian
}

std::optional<int64_t> ControlPage::CurrentStep() const {
  const uint64_t reported = Read(Word(kReported));
  if (reported == 0) return std::nullopt;
  return static_cast<int64_t>(reported - 1);
}

bool ControlPage::Arm(int64_t step) {
  Write(Word(kOrder), static_cast<uint64_t>(step) << 2 | kArmed);
  if (const auto current = CurrentStep(); current && *current >= step) {
    Disarm();
    return false;
  }
  return true;
}

bool ControlPage::Agree(int64_t step) {
  Write(Word(kOrder), static_cast<uint64_t>(step) << 2 | kAgreed);
  if (Read(Word(kGivenUp)) == static_cast<uint64_t>(step) + 1) {
    Disarm();
    return false;
  }
  return true;
}

uint64_t ControlPage::StagedBytes(uint64_t staging) const {
  if (Read(Word(kStaging)) != staging) return 0;
  const uint64_t bytes = Read(Word(kStagedBytes));
  return Read(Word(kStaging)) == staging ? bytes : 0;
}

void ControlPage::Disarm() { Write(Word(kOrder), 0); }

void ControlPage::Replaced() {
  Disarm();
  Write(Word(kReplaced), 1);
}

}  // namespace cairn
