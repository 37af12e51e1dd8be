// Lets threads that work in the background give way to the others of the machine.
#ifndef CAIRN_AGENT_WRITER_PRIORITY_H_
#define CAIRN_AGENT_WRITER_PRIORITY_H_

namespace cairn {

// From now on the calling thread gets about a tenth of a core for which another thread of usual priority competes, and
// all of an idle one; its requests to disks come after those of others, where the kernel's scheduler of the disk knows
// priorities. There is no way back without privileges, so only threads that end with their work may call it. What the
// system refuses changes nothing.
void GiveWay();

}  // namespace cairn

#endif  // CAIRN_AGENT_WRITER_PRIORITY_H_
