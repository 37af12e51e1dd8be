#include "common/rpc/short_report.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {
namespace {

using google::protobuf::RepeatedPtrField;
using google::protobuf::internal::WireFormatLite;

// After more unanswered requests than this, complete states are sent again.
constexpr size_t kMostSent = 8;

// Returns the bytes of each field of a serialized message, by the number of the field.
std::map<int, std::string_view> FieldsOf(const std::string& bytes) {
  std::map<int, std::string_view> fields;
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  for (;;) {
    const auto begin = static_cast<size_t>(input.CurrentPosition());
    const uint32_t tag = input.ReadTag();
    if (tag == 0 || !WireFormatLite::SkipField(&input, tag)) return fields;
    const auto end = static_cast<size_t>(input.CurrentPosition());
    // A repeated field occurs once for each value, one after the other.
    std::string_view& field = fields[WireFormatLite::GetTagFieldNumber(tag)];
    const size_t from = field.empty() ? begin : static_cast<size_t>(field.data() - bytes.data());
    field = std::string_view(bytes).substr(from, end - from);
  }
}

// Clears the fields of `message` that are the same in all of `others`.
template <typename Type>
void ClearCommon(const std::vector<const Type*>& others, Type& message) {
  std::vector<std::string> serialized;
  for (const Type* other : others) serialized.push_back(other->SerializeAsString());
  std::vector<std::map<int, std::string_view>> known;
  for (const std::string& bytes : serialized) known.push_back(FieldsOf(bytes));
  const std::string own = message.SerializeAsString();
  for (const auto& [number, bytes] : FieldsOf(own)) {
    const bool common =
        std::all_of(known.begin(), known.end(), [&, number = number, bytes = bytes](const auto& fields) {
          const auto found = fields.find(number);
          return found != fields.end() && found->second == bytes;
        });
    const auto* field = message.GetDescriptor()->FindFieldByNumber(number);
    if (common && field != nullptr) message.GetReflection()->ClearField(&message, field);
  }
}

const v1::SaveState* Find(const RepeatedPtrField<v1::SaveState>& saves, const v1::SaveState& save) {
  const auto found = std::find_if(saves.begin(), saves.end(), [&](const v1::SaveState& each) {
    return each.step() == save.step() && each.call() == save.call();
  });
  return found == saves.end() ? nullptr : &*found;
}

void ShortenSave(const std::vector<const v1::AgentState*>& known, const v1::TrainerState& trainer,
                 v1::SaveState& save) {
  std::vector<const v1::SaveState*> earlier;
  for (const v1::AgentState* state : known) {
    if (const v1::SaveState* found = Find(state->saves(), save); found != nullptr) earlier.push_back(found);
  }
  if (earlier.size() == known.size()) {
    const int64_t step = save.step();
    const uint64_t call = save.call();
    ClearCommon(earlier, save);
    save.set_step(step);
    save.set_call(call);
  } else {
    if (save.layout_digest() == trainer.layout_digest()) save.clear_layout_digest();
    if (save.trainer_incarnation() == trainer.incarnation()) save.clear_trainer_incarnation();
  }
}

v1::AgentState Changes(const std::vector<const v1::AgentState*>& known, const v1::AgentState& state) {
  v1::AgentState changes = state;
  // Lists always hold all present entries.
  changes.clear_saves();
  changes.clear_loads();
  changes.clear_groups();
  ClearCommon(known, changes);
  if (changes.has_trainer()) {
    std::vector<const v1::TrainerState*> trainers;
    for (const v1::AgentState* each : known) trainers.push_back(&each->trainer());
    ClearCommon(trainers, *changes.mutable_trainer());
  }
  for (const v1::SaveState& save : state.saves()) {
    v1::SaveState& change = *changes.add_saves() = save;
    ShortenSave(known, state.trainer(), change);
  }
  *changes.mutable_loads() = state.loads();
  *changes.mutable_groups() = state.groups();
  return changes;
}

// Clears the lists and messages of `save` that `change` has, so that merging replaces them and lists do not grow.
void ClearReplaced(const v1::SaveState& change, v1::SaveState& save) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  change.GetReflection()->ListFields(change, &fields);
  for (const auto* field : fields) {
    if (field->is_repeated() || field->message_type() != nullptr) save.GetReflection()->ClearField(&save, field);
  }
}

}  // namespace

void ReportShortener::Begin(bool allowed) {
  allowed_ = allowed;
  answered_ = false;
  sent_.clear();
}

void ReportShortener::Shorten(v1::SynchronizeAgentRequest& request) {
  if (!allowed_) return;
  if (sent_.size() >= kMostSent) {
    answered_ = false;
    sent_.clear();
  }
  const v1::AgentState state = request.state();
  if (answered_) {
    std::vector<const v1::AgentState*> known;
    for (const Sent& sent : sent_) known.push_back(&sent.state);
    v1::AgentState changes = Changes(known, state);
    // A short report cannot say that a field is not set any more, so such a state is sent complete.
    const std::string wanted = state.SerializeAsString();
    const bool suffices = std::all_of(known.begin(), known.end(), [&](const v1::AgentState* each) {
      return WholeState(*each, changes).SerializeAsString() == wanted;
    });
    if (suffices) {
      *request.mutable_state() = std::move(changes);
      request.set_base_sequence(sent_.front().sequence);
    }
  }
  sent_.push_back({request.sequence(), state});
}

void ReportShortener::OnAnswered(uint64_t sequence) {
  const auto found =
      std::find_if(sent_.begin(), sent_.end(), [&](const Sent& sent) { return sent.sequence == sequence; });
  if (found == sent_.end()) return;
  sent_.erase(sent_.begin(), found);
  answered_ = true;
}

v1::AgentState WholeState(v1::AgentState known, const v1::AgentState& changes) {
  v1::AgentState whole = std::move(known);
  RepeatedPtrField<v1::SaveState> saves;
  saves.Swap(whole.mutable_saves());
  whole.clear_loads();
  whole.clear_groups();
  if (changes.has_arm()) whole.clear_arm();
  whole.MergeFrom(changes);
  for (v1::SaveState& save : *whole.mutable_saves()) {
    const v1::SaveState* earlier = Find(saves, save);
    if (earlier == nullptr) {
      if (save.layout_digest().empty()) save.set_layout_digest(whole.trainer().layout_digest());
      if (save.trainer_incarnation() == 0) save.set_trainer_incarnation(whole.trainer().incarnation());
      continue;
    }
    v1::SaveState merged = *earlier;
    ClearReplaced(save, merged);
    merged.MergeFrom(save);
    save = std::move(merged);
  }
  // Fields that this version does not know would grow with every merge.
  whole.DiscardUnknownFields();
  return whole;
}

}  // namespace cairn
