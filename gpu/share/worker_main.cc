// cairn-gpu-worker: started by cairn-agent, which it serves over the socket that it inherits.
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

// The end of the worker may take this long once the agent has closed its end of the socket.
constexpr std::chrono::seconds kGrace(5);

// A call of CUDA or NCCL that hangs would keep the process alive after its agent.
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
    std::fputs("cairn-gpu-worker is started by cairn-agent, and by nobody else\n", stderr);
    return 2;
  }
  // A worker that is stopped would not see its agent's end. The signal comes when the thread ends that has started
  // the worker, so it must be one that does no harm while the agent goes on.
  prctl(PR_SET_PDEATHSIG, SIGCONT);
  // The agent says when it ends, also when people interrupt both.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  std::thread(EndWithAgent, socket).detach();
  cairn::Worker(cairn::UniqueFd(socket), libraries).Run();
  _exit(0);  // what the libraries would do at the end of the process may hang
}
