#include "cli/base/interrupt.h"

#include <csignal>
#include <initializer_list>

namespace cairn::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch nothing else");

extern "C" void OnSignal(int) { interrupted.store(true); }

}  // namespace

const std::atomic<bool>& InterruptFlag() {
  // Only once: installing again after a first signal would catch the second one, which must end the process.
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    // Without SA_RESTART a signal interrupts a blocked read. With SA_RESETHAND a second signal ends the process.
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
    return true;
  }();
  (void)installed;
  return interrupted;
}

}  // namespace cairn::cli
