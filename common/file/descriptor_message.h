// Messages over Unix sockets that carry file descriptors (SCM_RIGHTS).
#ifndef CAIRN_COMMON_FILE_DESCRIPTOR_MESSAGE_H_
#define CAIRN_COMMON_FILE_DESCRIPTOR_MESSAGE_H_

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "common/file/unique_fd.h"

namespace cairn {

// The maximum number of descriptors in one message.
inline constexpr size_t kMostDescriptors = 64;

// Sends `bytes`, at least one, as one message, with a copy of `descriptor` unless it is negative. Never blocks; raises
// no signal if the peer has closed the socket. Returns 0 or an errno: EAGAIN if the socket's buffer is full. On a
// stream socket the bytes must fit into an empty socket buffer.
int SendMessage(int socket, std::string_view bytes, int descriptor);
// Does the same with copies of several descriptors, at most kMostDescriptors.
int SendMessage(int socket, std::string_view bytes, std::span<const int> descriptors);

struct ReceivedMessage {
  size_t bytes = 0;                   // 0: the peer has closed its end
  bool truncated = false;             // more bytes, or more than kMostDescriptors descriptors, came
  std::vector<UniqueFd> descriptors;  // all that came, with close-on-exec set
};

// Receives one message of up to buffer.size() bytes. `flags` may be MSG_DONTWAIT. Returns 0 or an errno.
int ReceiveMessage(int socket, std::span<char> buffer, int flags, ReceivedMessage& received);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_DESCRIPTOR_MESSAGE_H_
