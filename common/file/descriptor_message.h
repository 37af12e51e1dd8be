// Messages over Unix sockets that carry file descriptors (SCM_RIGHTS).
#ifndef CAIRN_COMMON_FILE_DESCRIPTOR_MESSAGE_H_
#define CAIRN_COMMON_FILE_DESCRIPTOR_MESSAGE_H_

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "common/file/unique_fd.h"

namespace cairn {

// The most descriptors of one message.
inline constexpr size_t kMostDescriptors = 64;

// Sends `bytes`, at least one, as one message, with a copy of `descriptor` unless that is negative. It never waits, and
// a peer that has gone raises no signal. Returns 0 or an errno: EAGAIN if the socket is full. On a stream socket the
// bytes must be so few that an empty buffer holds them.
int SendMessage(int socket, std::string_view bytes, int descriptor);
// The same with copies of several descriptors, of which there may be kMostDescriptors.
int SendMessage(int socket, std::string_view bytes, std::span<const int> descriptors);

struct ReceivedMessage {
  size_t bytes = 0;                   // 0: the peer has closed its end
  bool truncated = false;             // more bytes, or more than kMostDescriptors descriptors, came
  std::vector<UniqueFd> descriptors;  // all that came, closed on exec
};

// Receives one message of up to buffer.size() bytes. `flags` may be MSG_DONTWAIT. Returns 0 or an errno.
int ReceiveMessage(int socket, std::span<char> buffer, int flags, ReceivedMessage& received);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_DESCRIPTOR_MESSAGE_H_
