//===- SocketTransport.cpp - Transfers over sockets -----------------------===//

#include "SocketTransport.h"

#include <bit>
#include <utility>

namespace penstock::runtime {

class SocketTransport::SocketExchange final : public Exchange {
public:
  SocketExchange(SocketTransport &transport, std::vector<Message> messages);
  Error run() override;

  Counter done;
  Error failure; ///< under the lock of the transport

private:
  SocketTransport &transport;
  std::vector<Post> posts;
  uint64_t target = 0; ///< of `done`, when the present run has ended
};

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

SocketTransport::SocketExchange::SocketExchange(SocketTransport &transport,
                                                std::vector<Message> messages)
    : transport(transport), posts(messages.size()) {
  for (size_t i = 0; i < posts.size(); ++i) {
    Post &post = posts[i];
    post.message = messages[i];
    post.exchange = this;
    post.channel =
        &transport.channels[{post.message.channel, post.message.peer}];
    const Instruction &label = post.message.label;
    Header &header = post.header;
    header.id = transport.id;
    header.bytes = post.message.bytes;
    header.channel = post.message.channel;
    header.stage = label.stage;
    header.microbatch = label.microbatch;
    header.payload = static_cast<uint8_t>(label.payload);
    header.op = static_cast<uint8_t>(label.op);
    header.kind = post.message.sends ? Header::Data : Header::Ready;
    post.owner = &transport;
    if (!post.message.sends)
      continue;
    post.data = static_cast<const std::byte *>(post.message.data);
    post.onWritten = [](Outgoing &outgoing) {
      static_cast<Post &>(outgoing).exchange->done.advance();
    };
  }
}

Error SocketTransport::open(const ProgramHash &hash) {
  id =
      hash.low ^ std::rotl(hash.high, 1) ^ (runNumber + 1) * 0x9e3779b97f4a7c15;
  mesh.attach(id, *this);
  return {};
}

Result<std::unique_ptr<Exchange>>
SocketTransport::makeExchange(uint16_t, std::vector<Message> messages) {
  std::lock_guard lock(mutex);
  auto exchange = std::make_unique<SocketExchange>(*this, std::move(messages));
  exchanges.push_back(exchange.get());
  if (aborted)
    exchange->done.abort();
  return std::unique_ptr<Exchange>(std::move(exchange));
}

void SocketTransport::abort() {
  ExchangeTransport::abort();
  std::lock_guard lock(mutex);
  for (SocketExchange *exchange : exchanges)
    exchange->done.abort();
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

void SocketTransport::Queue::push(Post &post) {
  post.behind = nullptr;
  (head ? tail->behind : head) = &post;
  tail = &post;
}

SocketTransport::Post *SocketTransport::Queue::pop() {
  Post *post = head;
  if (post)
    head = post->behind;
  return post;
}

Error SocketTransport::SocketExchange::run() {
  target += posts.size();
  for (Post &post : posts)
    transport.post(post);
  if (done.waitFor(target))
    return {};
  std::lock_guard lock(transport.mutex);
  return failure ? failure
                 : Error{ErrorKind::Aborted, "the transport was aborted"};
}

void SocketTransport::post(Post &post) {
  std::lock_guard lock(mutex);
  Channel &channel = *post.channel;
  if (!post.message.sends) {
    channel.receives.push(post);
  } else if (channel.numReady > 0) {
    --channel.numReady;
  } else {
    channel.sends.push(post);
    return;
  }
  mesh.post(post.message.peer, post);
}

void SocketTransport::onReady(int from, const Header &header) {
  std::lock_guard lock(mutex);
  Channel &channel = channels[{header.channel, from}];
  if (Post *send = channel.sends.pop())
    mesh.post(from, *send);
  else
    ++channel.numReady;
}

std::byte *SocketTransport::onData(int from, const Header &header) {
  std::lock_guard lock(mutex);
  Post *post = channels[{header.channel, from}].receives.pop();
  if (!post)
    return nullptr; // nobody is ready: not from a transport like this
  const Message &own = post->message;
  Instruction send = own.label;
  if (isTransfer(own.label.op)) {
    send.op = Op::Send;
    send.peer = rank;
  }
  send.payload = static_cast<Payload>(header.payload);
  send.stage = header.stage;
  send.microbatch = header.microbatch;
  send.bytes = header.bytes;
  if (Error error = compareLabels(send, own)) {
    post->exchange->failure = std::move(error);
    post->exchange->done.abort();
    return nullptr;
  }
  coming[from] = post;
  return own.bytes > 0 ? static_cast<std::byte *>(own.data) : &nothing;
}

void SocketTransport::onEnd(int from) {
  std::lock_guard lock(mutex);
  coming.at(from)->exchange->done.advance();
}

} // namespace penstock::runtime
