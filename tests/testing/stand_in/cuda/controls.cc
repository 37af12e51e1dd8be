#include "tests/testing/stand_in/cuda/controls.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "tests/testing/stand_in/cuda/entry.h"
#include "tests/testing/stand_in/cuda/state.h"

using cairn::stand_in::Settings;
using cairn::stand_in::State;
using cairn::stand_in::TheState;

namespace {

// Null for a name that it does not have.
int64_t Settings::* FieldOf(const std::string& name) {
  static const std::map<std::string, int64_t Settings::*> kFields = {
      {"devices", &Settings::devices},
      {"device_bytes", &Settings::device_bytes},
      {"pinnable_bytes", &Settings::pinnable_bytes},
      {"bytes_per_second", &Settings::bytes_per_second},
      {"copy_delay_us", &Settings::copy_delay_us},
      {"engine_stopped", &Settings::engine_stopped},
      {"broken", &Settings::broken},
      {"first_device", &Settings::first_device},
      {"fabric", &Settings::fabric},
  };
  const auto field = kFields.find(name);
  return field == kFields.end() ? nullptr : field->second;
}

}  // namespace

const int cairn_stand_in = 1;

void cairn::stand_in::ReadSettings() {
  const char* path = std::getenv("STAND_IN_CUDA");
  if (path == nullptr) return;
  std::ifstream file(path);
  for (std::string what, name; file >> what >> name;) {
    int64_t value = 0, result = 0;
    if (what == "hang") {
      TheState().hanging.insert(name);
    } else if (what == "fail" && file >> value >> result) {
      TheState().failures[name] = {.calls_left = value, .result = static_cast<int>(result)};
    } else if (what != "set" || !(file >> value) || FieldOf(name) == nullptr) {
      std::abort();
    } else {
      TheState().settings.*FieldOf(name) = value;
    }
  }
}

int64_t cairn_stand_in_set(const char* name, int64_t value) {
  const auto field = FieldOf(name);
  if (field == nullptr) return -1;
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.settings.*field = value;
  state.changed.notify_all();
  return 0;
}

void cairn_stand_in_fail(const char* function, int64_t nth, int64_t result) {
  const std::lock_guard lock(TheState().mutex);
  TheState().failures[function] = {.calls_left = nth, .result = static_cast<int>(result)};
}

void cairn_stand_in_hang(const char* function) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (function == nullptr) {
    state.hanging.clear();
  } else {
    state.hanging.insert(function);
  }
  state.changed.notify_all();
}

int64_t cairn_stand_in_count(const char* name) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const std::string what = name;
  if (what == "registered_bytes") return state.RegisteredBytes();
  if (what == "allocated_host_bytes") return state.BytesOf(state.host_allocations);
  if (what == "used_device_bytes") return state.UsedBytes(-1);
  if (what == "lent_bytes") return state.LentBytes();
  if (what == "handles") return static_cast<int64_t>(state.handles.size());
  if (what == "reservations") return static_cast<int64_t>(state.reservations.size());
  if (what == "imported_bytes") {
    int64_t total = 0;
    for (const auto* physical : state.physicals)
      total += physical->imported ? static_cast<int64_t>(physical->bytes) : 0;
    return total;
  }
  if (what == "streams") return static_cast<int64_t>(state.streams.size() - state.streams.count(0));
  if (what == "events") return static_cast<int64_t>(state.events.size());
  if (what == "modules") return static_cast<int64_t>(state.modules.size());
  if (what == "contexts") {
    int64_t total = 0;
    for (const auto& [device, retained] : state.contexts) total += retained;
    return total;
  }
  const auto found = state.counts.find(what);
  return found == state.counts.end() ? 0 : found->second;
}

void* cairn_stand_in_alias(unsigned long long device) {
  const std::lock_guard lock(TheState().mutex);
  size_t offset = 0;
  const auto* found = TheState().Find(device, 1, &offset, cairn::cuda::kAccessNone);
  return found == nullptr ? nullptr : found->alias + offset;
}

void cairn_stand_in_reset() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.settings = {};
  state.failures.clear();
  state.hanging.clear();
  const int64_t blocked = state.counts["hanging"];
  state.counts.clear();
  state.counts["hanging"] = blocked;
  state.changed.notify_all();
}
