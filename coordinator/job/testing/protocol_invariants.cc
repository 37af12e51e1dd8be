#include "coordinator/job/testing/protocol_invariants.h"

#include <algorithm>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cairn {
namespace {

// The value of a field in the text of a line of the log.
std::string FieldOf(const std::string& text, const std::string& key) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  for (const std::string& word : words) {
    if (absl::StartsWith(word, absl::StrCat(key, "="))) return word.substr(key.size() + 1);
  }
  return "";
}

bool Writes(const SimulatedAgent& agent, int64_t step, uint32_t attempt) {
  const auto call = agent.calls.find(step);
  return call != agent.calls.end() && call->second.state.attempt() == attempt &&
         call->second.state.phase() == v1::Phase::STAGED;
}

}  // namespace

void ProtocolInvariants::Registered(int rank, uint64_t incarnation) {
  Heard& heard = heard_[rank];
  if (heard.incarnation != incarnation) heard = {incarnation};
  heard.again = heard.sequence > 0;
}

std::string ProtocolInvariants::AfterReport(const v1::SynchronizeAgentRequest& report,
                                            const v1::SynchronizeAgentResponse& orders, absl::Time now) {
  const int rank = static_cast<int>(report.agent().rank());
  Heard& heard = heard_[rank];
  if (heard.incarnation != report.agent().incarnation()) {
    return absl::StrCat("a report of a process of rank ", rank, " that is not registered was taken");
  }
  heard.at = now;
  for (const v1::SaveOrder& order : orders.saves()) {
    if (order.plan_digest().empty()) continue;
    const bool moves = rank == kGivesShards || rank == kTakesShards;
    if (order.transfer_token() != (moves ? TokenOf(order.plan_digest()) : "")) {
      return absl::StrCat("rank ", rank, moves ? " lacks the token" : " needs no token", " of step ", order.step());
    }
  }
  if (report.sequence() > heard.sequence) {
    heard.sequence = report.sequence();
    heard.again = false;
    heard.steps.clear();
    for (const v1::SaveState& save : report.state().saves()) heard.steps.push_back(save.step());
  }
  if (heard.again) return "";
  std::vector<int64_t> answered;
  for (const v1::SaveOrder& order : orders.saves()) answered.push_back(order.step());
  return answered == heard.steps ? "" : absl::StrCat("rank ", rank, " is answered what an overtaken report has asked");
}

void ProtocolInvariants::Logged(const LogEvent& event, absl::Time now) {
  if (event.event != "save_state") return;
  const std::string text = event.Text(), state = FieldOf(text, "state");
  int64_t step = 0;
  if (!absl::SimpleAtoi(FieldOf(text, "step"), &step)) return;
  const auto of_step = [&](const Running& running) { return running.step == step; };
  if (state == "COLLECTING") running_.push_back({step});
  if (state == "COMMITTED" || state == "ABORTED") std::erase_if(running_, of_step);
  const auto found = std::find_if(running_.begin(), running_.end(), of_step);
  if (state == "ABORTING" && found != running_.end()) found->aborting = now;
}

std::string ProtocolInvariants::Before(const CoreAction& action, const std::vector<SimulatedAgent>& agents,
                                       absl::Time now) const {
  if (const auto* remove = std::get_if<RemoveFiles>(&action)) return BeforeRemove(*remove, agents, now);
  if (const auto* put = std::get_if<PutOutcome>(&action)) return BeforePut(*put, agents, now);
  if (const auto* make = std::get_if<MakeManifest>(&action)) {
    for (size_t rank = 0; rank < make->result.size(); ++rank) {
      const v1::WriteResult& result = make->result[rank];
      if (result.files_size() != 1 || result.files(0).header_crc32c() != rank + 1) {
        return absl::StrCat("the manifest of step ", make->step, " is not made with the result of rank ", rank);
      }
    }
  }
  return "";
}

std::string ProtocolInvariants::BeforeRemove(const RemoveFiles& remove, const std::vector<SimulatedAgent>& agents,
                                             absl::Time now) const {
  const auto aborting = std::find_if(running_.begin(), running_.end(),
                                     [&](const Running& running) { return running.step == remove.step; });
  if (remove.deleted || aborting == running_.end() || now - aborting->aborting >= lease_) return "";
  for (const SimulatedAgent& agent : agents) {
    const auto heard = heard_.find(agent.rank);
    // One that restarted writes no more, and one that was not heard for a lease is waited for no longer.
    if (heard == heard_.end() || heard->second.incarnation != agent.incarnation || now - heard->second.at >= lease_) {
      continue;
    }
    if (Writes(agent, remove.step, remove.attempt)) {
      return absl::StrCat("files of step ", remove.step, " are removed while rank ", agent.rank, " writes them");
    }
  }
  return "";
}

std::string ProtocolInvariants::BeforePut(const PutOutcome& put, const std::vector<SimulatedAgent>& agents,
                                          absl::Time now) const {
  if (put.manifest != nullptr) {
    for (const Running& running : running_) {
      if (running.step == put.step) break;  // later ones wait for this one
      if (running.step < put.step && running.aborting == absl::InfiniteFuture()) {
        return absl::StrCat("step ", put.step, " is committed before step ", running.step, ", which began before it");
      }
    }
    return "";
  }
  const bool abandoned = absl::StrContains(put.error.message(), "no rank came back with it");
  if (!abandoned || now - started_ >= 2 * lease_) return "";
  for (const SimulatedAgent& agent : agents) {
    const auto call = agent.calls.find(put.step);
    if (call != agent.calls.end() && call->second.state.attempt() == put.attempt) {
      return absl::StrCat("rank ", agent.rank, " had no time to come back with step ", put.step);
    }
  }
  return "";
}

}  // namespace cairn
