// Saves that this agent holds nothing of because it restarted, and whose trainer asks what became of them. The
// coordinator is asked (SaveState.ASKED) until it has answered, with an outcome or UNKNOWN, which waits here for the
// trainer.
#ifndef CAIRN_AGENT_SESSION_ASKED_SAVES_H_
#define CAIRN_AGENT_SESSION_ASKED_SAVES_H_

#include <cstdint>
#include <list>
#include <optional>

#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// Not thread-safe.
class AskedSaves {
 public:
  // Those beyond it are asked for when there is room again.
  static constexpr size_t kMost = 64;

  struct Question {
    uint64_t trainer = 0;
    int64_t step = 0;
    // One of them says which save it is; the other one is 0.
    uint32_t attempt = 0;
    uint64_t save = 0;
    bool operator==(const Question&) const = default;
  };

  // Asks, unless it is asked already. `number` tells the answer from those to saves of the same step: no call of the
  // trainer may have it. True if it was taken.
  bool Ask(const Question& question, uint64_t number);
  // The answer, if it has come. It is told once; who asks again is answered by the coordinator again.
  std::optional<v1::SaveOrder> Take(const Question& question);
  // The last order for it; null if there was none.
  const v1::SaveOrder* Last(const Question& question) const;
  void TrainerGone(uint64_t trainer);

  // Adds what is to be asked.
  void AddTo(v1::AgentState& state) const;
  // True if the order answers one of these, not a save.
  bool Apply(const v1::SaveOrder& order);

 private:
  struct Entry {
    Question question;
    uint64_t number = 0;
    std::optional<v1::SaveOrder> last;
    bool answered = false;
  };
  std::list<Entry> entries_;  // oldest first
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_ASKED_SAVES_H_
