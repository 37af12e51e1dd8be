// Says any bytes to the server for strangers. What waits to be sent stays small, and after so many bytes the connection
// ends.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/rpc/health_board.h"
#include "common/rpc/stranger_session.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using cairn::StrangerSession;
  constexpr size_t kMostUnsent = 64 << 10;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  cairn::HealthBoard health;
  const StrangerSession::Answers answers = {absl::UnauthenticatedError("a token is needed"), &health};
  StrangerSession session(answers);
  bool serving = false;
  size_t said = 0;
  bool goes_on = true;
  while (goes_on && !rest.empty()) {
    if (session.unsent().size() > kMostUnsent) std::abort();
    session.Sent(session.unsent().size());
    if (!session.unsent().empty()) continue;
    const size_t taken = std::min({rest.size(), StrangerSession::kMostAtOnce, static_cast<size_t>(data[0]) * 16 + 1});
    goes_on = session.Take(rest.substr(0, taken));
    rest.remove_prefix(taken);
    said += taken;
    health.SetAll(serving = !serving);
    if (session.watches()) session.Tell();
  }
  if (goes_on && said > StrangerSession::kMostBytes) std::abort();
  session.End();
  return 0;
}
