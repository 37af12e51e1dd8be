#include "foreign/read/pickle/bounded_json.h"

namespace cairn {
namespace {

constexpr int kMostDepth = 100;

}  // namespace

nlohmann::json ParseBoundedJson(std::string_view text) {
  bool too_deep = false;
  // Levels that are too deep are dropped, so that the value never becomes deep.
  const auto keep = [&too_deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > kMostDepth;
    return !too_deep;
  };
  nlohmann::json parsed = nlohmann::json::parse(text, keep, /*allow_exceptions=*/false);
  return too_deep ? nlohmann::json(nlohmann::json::value_t::discarded) : parsed;
}

}  // namespace cairn
