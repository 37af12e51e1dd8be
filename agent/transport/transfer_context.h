// What transfers need of their agent: job, rank, machine, tokens, and its socket, buffers and service.
#ifndef CAIRN_AGENT_TRANSPORT_TRANSFER_CONTEXT_H_
#define CAIRN_AGENT_TRANSPORT_TRANSFER_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "agent/reader/buffer_pool.h"
#include "agent/sockets/descriptor_socket.h"
#include "agent/staging/memory_offers.h"
#include "agent/transport/transfer_identity.h"
#include "agent/transport/transfer_service.h"
#include "common/rpc/token_source.h"

namespace cairn {

// All that it refers to outlives those who use it.
struct TransferContext {
  std::string job;
  uint32_t rank = 0;
  // The boot id of the machine's kernel. Agents with the same one can share memory.
  std::string boot_id;
  // False: bytes between agents always go over gRPC.
  bool shared_memory = true;
  // Largest read buffer, in bytes; windows of bytes that come from other agents follow it.
  uint64_t round_bytes = 0;
  std::shared_ptr<TokenSource> tokens;
  DescriptorSocket& descriptors;
  BufferPool& pool;
  TransferService& transfers;

  // Returns this rank's part in the transfers of a load, whose ranks share `token`.
  LoadTransfer PartIn(const std::string& plan_digest, const std::string& token) const {
    return {job, plan_digest, rank, token, tokens};
  }
  // Returns the way to offer memory at this agent's descriptor socket.
  MemoryOffers ReadOnlyOffers() const {
    return {.offer = [&socket = descriptors](
                         std::shared_ptr<SharedMemory> memory) { return socket.Offer(std::move(memory), true); },
            .offer_descriptor = [&socket = descriptors](UniqueFd fd) { return socket.OfferDescriptor(std::move(fd)); },
            .withdraw = [&socket = descriptors](uint64_t id) { socket.Withdraw(id); }};
  }
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_TRANSFER_CONTEXT_H_
