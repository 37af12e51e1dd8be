// cairn-gpu-worker: cairn-agent starts it, and it serves the agent over an inherited socket.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>

#include "gpu/share/worker.h"

namespace {

// How long the worker may take to end after the agent has closed its end of the socket.
constexpr std::chrono::seconds kGrace(5);

// Ends the process after its agent has ended, even if a call of CUDA or NCCL hangs.
void EndWithAgent(int socket) {
  pollfd polled = {socket, POLLRDHUP, 0};
  while (poll(&polled, 1, -1) < 0) {
  }
  std::this_thread::sleep_for(kGrace);
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  cairn::WorkerLibraries libraries;
  int socket = -1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value = [&](std::string_view flag) { return std::string(argument.substr(flag.size())); };
    if (argument.starts_with("--socket=")) socket = std::stoi(value("--socket="));
    if (argument.starts_with("--libcuda=")) libraries.driver = value("--libcuda=");
    if (argument.starts_with("--libnccl=")) libraries.nccl = value("--libnccl=");
  }
  int type = 0;
  socklen_t length = sizeof(type);
  if (getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET) {
    std::fputs("cairn-gpu-worker must be started by cairn-agent\n", stderr);
    return 2;
  }
  // A stopped worker would not notice its agent's end, so SIGCONT wakes it. The signal is sent when the agent's thread
  // that started the worker ends, so it must be harmless while the agent runs.
  prctl(PR_SET_PDEATHSIG, SIGCONT);
  // Only the agent ends the worker. Ctrl-C in a terminal reaches both, and the worker ignores it.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  std::thread(EndWithAgent, socket).detach();
  cairn::Worker(cairn::UniqueFd(socket), libraries).Run();
  _exit(0);  // not exit(): the libraries' exit handlers may hang
}
