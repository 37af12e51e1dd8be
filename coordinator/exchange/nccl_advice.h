// Says what people can do where bytes have not gone over NCCL. It is a function of the reason's text: most reasons come
// from agents, from NCCL itself, and from the loader of its library. The table of docs/nccl.md has the same answers.
#ifndef CAIRN_COORDINATOR_EXCHANGE_NCCL_ADVICE_H_
#define CAIRN_COORDINATOR_EXCHANGE_NCCL_ADVICE_H_

#include <string>
#include <string_view>

#include "coordinator/exchange/groups.h"

namespace cairn {

// Returns what to do about the `reason` of an ExchangeWay that was refused, because an agent requires NCCL. It ends
// with the flag by which agents require it no more.
std::string NcclAdvice(std::string_view reason, ExchangeUse use);

// Returns what to do after an exchange has failed: `operation` is "Load", "Reshard" or "Save". `required`: an agent
// requires NCCL.
std::string AdviceAfterFailedExchange(std::string_view operation, bool required, ExchangeUse use);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_EXCHANGE_NCCL_ADVICE_H_
