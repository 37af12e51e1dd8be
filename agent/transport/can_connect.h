// Whether another agent of this machine can hand over its memory.
#ifndef CAIRN_AGENT_TRANSPORT_CAN_CONNECT_H_
#define CAIRN_AGENT_TRANSPORT_CAN_CONNECT_H_

#include <string>

namespace cairn {

// True if a process of this user listens at the Unix socket `path`: others' memory is not trusted. Does not wait.
bool CanConnect(const std::string& path);

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_CAN_CONNECT_H_
