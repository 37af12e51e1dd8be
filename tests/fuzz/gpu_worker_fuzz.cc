// Says to a worker what an agent could say, right or not. An input is packets, each behind a byte of flags and two
// bytes of its length, little-endian.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "gpu/share/worker.h"

namespace cairn {
namespace {

constexpr unsigned kWithDescriptor = 1;  // of a file of 8 KiB
constexpr unsigned kWithoutAnswer = 2;   // the next packet comes at once
constexpr unsigned kWithShortFile = 4;   // the file has one page
constexpr size_t kMostPackets = 64;
// A worker that waits for other ranks says nothing, and does not hear much either.
constexpr absl::Duration kPatience = absl::Milliseconds(20);

// The stand-ins lie beside the tests, both in Bazel's output and where a test of Bazel runs.
std::string Library(const char* path) {
  if (std::filesystem::exists(path)) return std::filesystem::absolute(path).string();
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return (program.parent_path().parent_path().parent_path() / path).string();
}

const WorkerLibraries& Libraries() {
  static const WorkerLibraries libraries{Library("tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so"),
                                         Library("tests/testing/stand_in/nccl/libcairn_stand_in_nccl.so")};
  return libraries;
}

struct Packet {
  unsigned flags = 0;
  std::string_view bytes;
};

std::optional<Packet> TakePacket(std::string_view& input) {
  if (input.size() < 3) return std::nullopt;
  Packet packet;
  packet.flags = static_cast<uint8_t>(input[0]);
  const size_t length = static_cast<uint8_t>(input[1]) + size_t{256} * static_cast<uint8_t>(input[2]);
  input.remove_prefix(3);
  packet.bytes = input.substr(0, length);
  input.remove_prefix(packet.bytes.size());
  return packet;
}

// An id that the worker has made stands in for that of the input, which cannot know it.
std::string WithId(const Packet& packet, const std::string& id) {
  worker::WorkerRequest request;
  if (!request.ParseFromArray(packet.bytes.data(), static_cast<int>(packet.bytes.size())) || !request.has_join() ||
      request.join().unique_id() != "id") {
    return std::string(packet.bytes);
  }
  request.mutable_join()->set_unique_id(id);
  return request.SerializeAsString();
}

bool SendPacket(int socket, const std::string& bytes, int descriptor) {
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

void Converse(WorkerSocket& agent, std::string_view input) {
  std::string id(128, 'i');
  for (size_t sent = 0; sent < kMostPackets; ++sent) {
    const std::optional<Packet> packet = TakePacket(input);
    if (!packet.has_value()) return;
    UniqueFd file;
    if ((packet->flags & kWithDescriptor) != 0) {
      file = UniqueFd(memfd_create("fuzz", MFD_CLOEXEC));
      if (ftruncate(file.get(), (packet->flags & kWithShortFile) != 0 ? 4096 : 8192) != 0) std::abort();
    }
    if (!SendPacket(agent.fd(), WithId(*packet, id), file.get())) return;
    if ((packet->flags & kWithoutAnswer) != 0) continue;
    const auto answered = agent.Await(kPatience);
    if (!answered.ok()) return;
    if (!*answered) return;
    worker::WorkerEvent event;
    UniqueFd descriptor;
    const auto received = agent.Receive(event, descriptor);
    if (!received.ok()) std::abort();  // the worker speaks its protocol, whatever it hears
    if (!*received) return;
    if (event.event_case() == worker::WorkerEvent::EVENT_NOT_SET) std::abort();
    if (event.has_made_id()) id = event.made_id().unique_id();
    if (event.has_failed() && event.failed().error().empty()) std::abort();
  }
}

}  // namespace
}  // namespace cairn

// The worker answers or refuses, and ends when the agent has closed its end. It maps files of their own, so a step that
// went outside of its memory would end the process.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  setenv("NCCL_HOSTID", "fuzz", 1);
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  cairn::WorkerSocket agent((cairn::UniqueFd(ends[0])));
  std::thread serving(
      [socket = cairn::UniqueFd(ends[1])]() mutable { cairn::Worker(std::move(socket), cairn::Libraries()).Run(); });
  cairn::Converse(agent, {reinterpret_cast<const char*>(data), size});
  agent.Close();
  serving.join();
  return 0;
}
