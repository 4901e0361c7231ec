//===- Convert.cpp - Between a schedule op and a flat program -------------===//

#include "penstock/Dialect/Pipe/IR/Convert.h"

#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

#include "Syntax.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/STLExtras.h"

#include <map>

using namespace mlir;

template <>
struct llvm::DenseMapInfo<penstock::pipe::InstructionRef> {
  using Ref = penstock::pipe::InstructionRef;
  static Ref special(int32_t peer) {
    Ref ref;
    ref.peer = peer;
    return ref;
  }
  static Ref getEmptyKey() { return special(INT32_MIN); }
  static Ref getTombstoneKey() { return special(INT32_MIN + 1); }
  static unsigned getHashValue(const Ref &ref) {
    uint64_t kind = uint64_t(ref.op) << 8 | uint64_t(ref.payload);
    uint64_t low =
        uint64_t(uint32_t(ref.stage)) << 32 | uint32_t(ref.microbatch);
    uint64_t hash = (low ^ kind << 52) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
    return unsigned((hash + uint32_t(ref.peer)) * 0x9e3779b97f4a7c15u >> 32);
  }
  static bool isEqual(const Ref &a, const Ref &b) { return a == b; }
};

namespace penstock::pipe {

using llvm::failure;
using llvm::success;

static std::string describe(const InstructionRef &ref) {
  Instruction inst;
  inst.op = ref.op;
  inst.payload = ref.payload;
  inst.stage = ref.stage;
  inst.microbatch = ref.microbatch;
  inst.peer = ref.peer;
  return penstock::describe(inst);
}

namespace {
/// Finds the latest instruction of a rank with a given head. Instructions enter
/// the table only when something is looked up.
class HeadTable {
public:
  explicit HeadTable(const std::vector<Instruction> &instructions)
      : instructions(instructions) {}

  /// The latest instruction before `end` with this head; `end` never falls.
  std::optional<uint32_t> find(const InstructionRef &ref, size_t end) {
    for (; next < end; ++next)
      latest[InstructionRef(instructions[next])] = static_cast<uint32_t>(next);
    auto it = latest.find(ref);
    return it == latest.end() ? std::nullopt : std::optional(it->second);
  }

private:
  const std::vector<Instruction> &instructions;
  llvm::DenseMap<InstructionRef, uint32_t> latest;
  size_t next = 0;
};

/// Reads one schedule op.
class Extraction {
public:
  explicit Extraction(ScheduleOp schedule) : schedule(schedule) {
    result.schedule = schedule;
  }

  FailureOr<std::vector<Stage>> readModel();
  FailureOr<ExtractedProgram> run() {
    if (failed(readClauses()) || failed(readRanks()) || failed(readStages()))
      return failure();
    if (Status status = wellFormed(result.program); !status)
      return report(status.failure());
    if (failed(checkSlices()))
      return failure();
    return std::move(result);
  }

private:
  InFlightDiagnostic fail(Operation *op = nullptr) {
    return error(op ? op : schedule.getOperation())
           << "schedule @" << schedule.getSymName() << ": ";
  }
  LogicalResult report(const Failure &fault) {
    InFlightDiagnostic diag = fail(result.at(fault.site));
    if (fault.site.rank >= 0)
      diag << penstock::describe(result.program, fault.site) << ": ";
    return diag << fault.message;
  }
  Problem &problem() { return result.program.problem; }

  LogicalResult readClauses();
  LogicalResult readRanks();
  LogicalResult readRank(RankOp op);
  LogicalResult readInstruction(InstructionOpInterface op, RankProgram &rank,
                                std::vector<Operation *> &ops);
  LogicalResult readStages();
  LogicalResult placeByRanks(int32_t numStages);
  LogicalResult dealModel();
  LogicalResult checkSlices();

  template <typename OpTy>
  FailureOr<OpTy> lookup(FlatSymbolRefAttr name) {
    if (auto op = SymbolTable::lookupNearestSymbolFrom<OpTy>(schedule, name))
      return op;
    return fail() << "there is no " << OpTy::getOperationName() << ' ' << name
                  << "; define it, or drop the clause",
           failure();
  }

  ScheduleOp schedule;
  ExtractedProgram result;
  std::map<std::vector<int32_t>, int32_t> rankSets;
  int32_t maxStage = -1; ///< largest stage that an instruction names
};
} // namespace

LogicalResult Extraction::readClauses() {
  Problem &p = problem();
  p.name = schedule.getSymName();
  p.numRanks = schedule.getRanks();
  p.numMicrobatches = schedule.getMicrobatches();
  if (FlatSymbolRefAttr name = schedule.getClusterAttr()) {
    auto cluster = lookup<ClusterOp>(name);
    if (failed(cluster))
      return failure();
    if (p.numRanks == -1)
      p.numRanks = cluster->getRanks();
    p.memory = cluster->getMemory();
    if (LinkAttr link = cluster->getLinkAttr())
      p.link = link.resolve();
    if (LinkAttr link = cluster->getHostLinkAttr())
      p.hostLink = link.resolve();
  }
  if (p.numRanks == -1)
    return fail() << "no ranks: add ranks(N) or cluster(@name)";
  if (p.numMicrobatches == -1)
    return fail() << "no micro-batches: add microbatches(N)";
  ScheduleFamilyAttrInterface family = schedule.getFamilyAttr();
  const int32_t ofFamily = family ? family.getSlices() : 1;
  const bool isGiven = schedule.getSlices() != -1;
  if (isGiven && ofFamily != 1 && ofFamily != schedule.getSlices())
    return fail() << "slices(" << schedule.getSlices()
                  << ") disagrees with the " << ofFamily
                  << " slices of the family; drop one of them";
  setSlices(p, isGiven ? schedule.getSlices() : ofFamily);
  if (schedule.getMemory() != -1)
    p.memory = schedule.getMemory();
  if (LinkAttr link = schedule.getLinkAttr())
    p.link = link.resolve();
  if (LinkAttr link = schedule.getHostLinkAttr())
    p.hostLink = link.resolve();
  if (CostAttr costs = schedule.getCostsAttr())
    p.link.latency = costs.getTransfer().valueOr(p.link.latency);
  p.chains.assign(schedule.getChains().begin(), schedule.getChains().end());
  if (DenseF64ArrayAttr weights = schedule.getWeightsAttr())
    p.weights.assign(weights.asArrayRef().begin(), weights.asArrayRef().end());
  schedule.forEachTied([&](ArrayRef<int32_t> stages, int64_t bytes) {
    p.tied.push_back({{stages.begin(), stages.end()}, bytes});
  });
  if (FloatAttr overlap = schedule.getOverlapAttr())
    p.overlap = overlap.getValueAsDouble() + 0.0;
  p.postValidation = schedule.getPostValidation();
  return success();
}

LogicalResult Extraction::readRanks() {
  const int32_t numRanks = problem().numRanks;
  result.program.ranks.resize(numRanks);
  result.rankOps.resize(numRanks);
  result.ops.resize(numRanks);
  for (RankOp op : schedule.getBody().getOps<RankOp>()) {
    if (op.getRank() >= numRanks)
      return fail(op) << "rank " << op.getRank()
                      << " is out of range: there are " << numRanks
                      << " ranks; write 0 to " << numRanks - 1;
    if (failed(readRank(op)))
      return failure();
  }
  numberRankSets(result.program); // the rank ops may stand in any order
  return success();
}

LogicalResult Extraction::readRank(RankOp op) {
  const int32_t index = op.getRank();
  RankProgram &rank = result.program.ranks[index];
  std::vector<Operation *> &ops = result.ops[index];
  result.rankOps[index] = op;

  auto unfold = [](ArrayRef<int64_t> slots, std::vector<int64_t> &bytes) {
    for (size_t i = 0; i < slots.size(); i += 2)
      bytes.insert(bytes.end(), slots[i], slots[i + 1]);
  };
  rank.slotBytes.reserve(op.getNumSlots());
  unfold(op.getSlots(), rank.slotBytes);
  unfold(op.getHostSlots(), rank.hostSlotBytes);

  HeadTable heads(rank.instructions);
  for (Operation &item : op.getBody().front()) {
    const size_t first = rank.instructions.size();
    uint8_t queue;
    ArrayRef<InstructionRef> after;
    if (auto instruction = dyn_cast<InstructionOpInterface>(item)) {
      if (failed(readInstruction(instruction, rank, ops)))
        return failure();
      queue = rank.instructions.back().queue;
      after = instruction.getAfter();
    } else {
      for (Operation &member : item.getRegion(0).front())
        if (failed(readInstruction(cast<InstructionOpInterface>(member), rank,
                                   ops)))
          return failure();
      if (auto group = dyn_cast<GroupOp>(item)) {
        queue = group.getQueue();
        after = group.getAfter();
      } else {
        auto overlap = cast<OverlapOp>(item);
        queue = overlap.getQueue();
        after = overlap.getAfter();
      }
    }
    for (size_t i = first; i < rank.instructions.size(); ++i) {
      rank.instructions[i].joined = i > first;
      rank.instructions[i].queue = queue;
    }
    if (after.empty())
      continue;
    Instruction &inst = rank.instructions[first];
    inst.firstWait = static_cast<uint32_t>(rank.waits.size());
    inst.numWaits = static_cast<uint16_t>(after.size());
    for (const InstructionRef &ref : after) {
      std::optional<uint32_t> found = heads.find(ref, first);
      if (!found)
        return fail(&item) << "rank " << index << " waits for `"
                           << describe(ref)
                           << "`, which does not stand before; move that "
                              "forward, or drop the wait";
      rank.waits.push_back(*found);
    }
  }
  return success();
}

LogicalResult Extraction::readInstruction(InstructionOpInterface op,
                                          RankProgram &rank,
                                          std::vector<Operation *> &ops) {
  Instruction inst = op.getInstruction();
  if (inst.microbatch >= problem().numMicrobatches)
    return fail(op) << "`" << penstock::describe(inst) << "`: there are only "
                    << countedMicrobatches(problem()) << "; write 0 to "
                    << problem().numMicrobatches - 1
                    << ", or raise microbatches(N)";
  if (ArrayRef<int32_t> set = op.getRanks(); !set.empty()) {
    auto [it, inserted] = rankSets.try_emplace(
        std::vector<int32_t>(set.begin(), set.end()), rankSets.size());
    if (inserted)
      result.program.rankSets.push_back(it->first);
    inst.peer = it->second;
  }
  maxStage = std::max(maxStage, inst.stage);
  rank.instructions.push_back(inst);
  ops.push_back(op);
  return success();
}

LogicalResult Extraction::readStages() {
  Problem &p = problem();
  CostAttr costs = schedule.getCostsAttr();
  BytesAttr bytes = schedule.getBytesAttr();
  const Stage uniform{0, 1, costs ? costs.resolve() : StageCost(),
                      bytes ? bytes.resolve() : StageBytes()};

  // Written down, stage by stage.
  std::vector<StageOp> ops;
  for (StageOp op : schedule.getBody().getOps<StageOp>())
    ops.push_back(op);
  if (!ops.empty()) {
    const size_t numStages = ops.size();
    const size_t numChains = ops[0].getPlacement().size();
    p.stages.assign(numStages, uniform);
    p.placement.resize(numStages * numChains);
    for (size_t s = 0; s < numStages; ++s) {
      StageOp op = ops[s];
      Stage &stage = p.stages[s];
      const bool layers = op.getFirstLayer() != -1;
      stage.firstLayer = layers ? op.getFirstLayer() : static_cast<int32_t>(s);
      stage.numLayers = layers ? op.getNumLayers() : 1;
      if (CostAttr attr = op.getCostsAttr())
        stage.cost = attr.resolve();
      if (BytesAttr attr = op.getBytesAttr())
        stage.bytes = attr.resolve();
      for (size_t c = 0; c < numChains; ++c) {
        const int32_t rank = op.getPlacement()[c];
        if (rank >= p.numRanks)
          return fail(op) << "stage " << s << " is on rank " << rank
                          << ", but there are " << p.numRanks
                          << " ranks; place it on a rank below " << p.numRanks;
        p.placement[c * numStages + s] = rank;
      }
    }
    return success();
  }

  // Those that the instructions name, or those that the family wants.
  ScheduleFamilyAttrInterface family = schedule.getFamilyAttr();
  int64_t numStages = int64_t(maxStage) + 1;
  if (numStages == 0)
    numStages = int64_t(p.numRanks) * (family ? family.getChunks() : 1);
  if (numStages > kMaxStages)
    return fail() << numStages << " stages are too many, the limit is "
                  << kMaxStages;
  if (maxStage >= 0 && failed(placeByRanks(static_cast<int32_t>(numStages))))
    return failure();
  p.stages.assign(numStages, uniform);
  for (int32_t s = 0; s < numStages; ++s)
    p.stages[s].firstLayer = s;
  if (maxStage == -1) {
    if (family)
      family.place(p);
    else
      p.placement = placeLoop(p.numStages(), p.numRanks);
  }
  return schedule.getModelAttr() ? dealModel() : success();
}

/// Places every stage where its first forward stands, on each chain.
LogicalResult Extraction::placeByRanks(int32_t numStages) {
  Problem &p = problem();
  int32_t numChains = 1;
  for (uint8_t chain : p.chains)
    numChains = std::max(numChains, chain + 1);
  const size_t numPlaces = size_t(numChains) * numStages;
  if (size_t n = result.program.numInstructions(); n < numPlaces) {
    InFlightDiagnostic diag = fail() << numStages << " stages";
    if (numChains > 1)
      diag << " on " << numChains << " chains";
    return diag << " need a forward each, but there are " << n
                << " instructions: stage " << maxStage
                << " is the last one named; number stages and chains from 0 "
                   "without gaps";
  }
  p.placement.assign(numPlaces, -1);
  for (int32_t rank = 0; rank < p.numRanks; ++rank)
    for (const Instruction &inst : result.program.ranks[rank].instructions) {
      if (inst.op != Op::Forward)
        continue;
      int32_t &place =
          p.placement[size_t(p.chainOf(inst.microbatch)) * numStages +
                      inst.stage];
      if (place == -1)
        place = rank;
    }
  for (size_t i = 0; i < p.placement.size(); ++i) {
    if (p.placement[i] != -1)
      continue;
    InFlightDiagnostic diag = fail() << "stage " << i % numStages
                                     << " is on no rank: no rank runs its "
                                        "forward";
    if (numChains > 1)
      diag << " on chain " << i / numStages;
    return diag << "; add it, or say where the stage is with `stage "
                << i % numStages << " on R`";
  }
  return success();
}

FailureOr<std::vector<Stage>> Extraction::readModel() {
  std::vector<Stage> layers;
  FlatSymbolRefAttr name = schedule.getModelAttr();
  if (!name)
    return layers;
  auto model = lookup<ModelOp>(name);
  if (failed(model))
    return failure();
  for (LayerOp op : model->getBody().getOps<LayerOp>()) {
    Stage layer;
    if (CostAttr costs = op.getCostsAttr())
      layer.cost = costs.resolve();
    if (BytesAttr bytes = op.getBytesAttr())
      layer.bytes = bytes.resolve();
    const size_t numLayers = layers.size() + op.getTimes();
    if (numLayers > size_t(kMaxStages))
      return fail(op) << "model @" << model->getSymName() << " has more than "
                      << kMaxStages << " layers; make one of several";
    layers.resize(numLayers, layer);
  }
  return layers;
}

/// Deals the layers of the model out to the stages.
LogicalResult Extraction::dealModel() {
  FailureOr<std::vector<Stage>> layers = readModel();
  if (failed(layers))
    return failure();
  Result<std::vector<Stage>> stages =
      dealLayers(*layers, problem().numStages(), problem().placement);
  if (!stages)
    return fail() << "layers of model " << schedule.getModelAttr() << ": "
                  << stages.message();
  problem().stages = std::move(*stages);
  return success();
}

/// A slice of an activation has a byte at least.
LogicalResult Extraction::checkSlices() {
  const Problem &p = problem();
  for (int32_t s = 0; s + 1 < p.numStages(); ++s)
    if (const int64_t output = p.stages[s].bytes.output;
        output > 0 && output < p.slices)
      return fail() << "stage " << s << " hands on " << output
                    << (output == 1 ? " byte" : " bytes")
                    << " for a micro-batch, which cannot be cut into "
                    << p.slices << " slices; give at most " << output
                    << ", or a larger output";
  return success();
}

FailureOr<std::vector<Stage>> extractLayers(ScheduleOp schedule) {
  return Extraction(schedule).readModel();
}

FailureOr<ScheduleOp> findSchedule(Operation *module, StringRef name) {
  ScheduleOp found;
  std::string names;
  unsigned count = 0;
  module->walk<WalkOrder::PreOrder>([&](ScheduleOp op) {
    if (name.empty() || op.getSymName() == name) {
      found = op;
      ++count;
    }
    names += (names.empty() ? "@" : ", @") + op.getSymName().str();
    return WalkResult::skip();
  });
  if (count == 1)
    return found;
  if (names.empty())
    return emitError(module->getLoc()) << "no pipe.schedule in the input",
           failure();
  if (count == 0)
    return emitError(module->getLoc())
               << "no schedule @" << name << "; there are " << names,
           failure();
  return emitError(module->getLoc()) << "several schedules (" << names
                                     << "); choose one with --schedule=NAME",
         failure();
}

FailureOr<ExtractedProgram> extractProgram(ScheduleOp schedule) {
  return Extraction(schedule).run();
}

Operation *ExtractedProgram::at(Site site) const {
  if (site.rank >= 0 && size_t(site.rank) < ops.size()) {
    if (site.instruction < ops[site.rank].size())
      return ops[site.rank][site.instruction];
    if (RankOp rank = rankOps[site.rank])
      return rank;
  }
  return ScheduleOp(schedule);
}

InFlightDiagnostic emitAt(const ExtractedProgram &extracted, Site site) {
  return error(extracted.at(site));
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static void writeStages(OpBuilder &builder, Location loc,
                        const Problem &problem) {
  MLIRContext *context = builder.getContext();
  const size_t numStages = problem.stages.size();
  for (size_t s = 0; s < numStages; ++s) {
    const Stage &stage = problem.stages[s];
    StageOp::Properties props;
    props.stage = static_cast<int32_t>(s);
    for (int32_t c = 0; c < problem.numChains(); ++c)
      props.placement.push_back(problem.placement[c * numStages + s]);
    if (stage.firstLayer != props.stage || stage.numLayers != 1) {
      props.first_layer = stage.firstLayer;
      props.num_layers = stage.numLayers;
    }
    if (stage.cost != StageCost())
      props.costs = CostAttr::get(context, stage.cost);
    if (stage.bytes != StageBytes())
      props.bytes = BytesAttr::get(context, stage.bytes);
    OperationState state(loc, StageOp::getOperationName());
    state.getOrAddProperties<StageOp::Properties>() = props;
    builder.create(state);
  }
}

/// Makes a container op with one empty block.
template <typename OpTy>
static OpTy createContainer(OpBuilder &builder, Location loc) {
  OperationState state(loc, OpTy::getOperationName());
  state.addRegion()->emplaceBlock();
  return cast<OpTy>(builder.create(state));
}

static LogicalResult writeRank(RankOp op, const Program &program,
                               int32_t index) {
  const RankProgram &rank = program.ranks[index];
  Location loc = op.getLoc();
  Block &body = op.getBody().front();

  auto fold = [](const std::vector<int64_t> &slotBytes) {
    SmallVector<int64_t> slots;
    for (int64_t bytes : slotBytes) {
      if (slots.empty() || slots.back() != bytes)
        slots.append({0, bytes});
      ++slots[slots.size() - 2];
    }
    return slots;
  };
  op.setSlots(fold(rank.slotBytes));
  op.setHostSlots(fold(rank.hostSlotBytes));

  HeadTable heads(rank.instructions);
  Waits after;
  const size_t count = rank.instructions.size();
  for (size_t first = 0, end; first < count; first = end) {
    const Instruction &inst = rank.instructions[first];
    for (end = first + 1; end < count && rank.instructions[end].joined; ++end)
      ;
    after.clear();
    for (uint32_t i = 0; i < inst.numWaits; ++i) {
      const uint32_t wait = rank.waits[inst.firstWait + i];
      const InstructionRef &ref = after.emplace_back(rank.instructions[wait]);
      if (heads.find(ref, first) != wait)
        return error(op) << "rank " << index << ", `"
                         << penstock::describe(inst)
                         << "`: cannot write that it waits for instruction "
                         << wait << ", because another `" << describe(ref)
                         << "` stands in between; use one of the two only";
    }
    auto ranksOf = [&](const Instruction &member) -> ArrayRef<int32_t> {
      if (!isCollective(member.op) || member.peer < 0)
        return {};
      return program.rankSets[member.peer];
    };
    if (end == first + 1) {
      body.push_back(createInstruction(loc, inst, after, ranksOf(inst)));
      continue;
    }
    OpBuilder builder = OpBuilder::atBlockEnd(&body);
    auto writeItem = [&](auto item) {
      item.setQueue(inst.queue);
      item.setAfter(after);
      for (size_t i = first; i < end; ++i) {
        Instruction member = rank.instructions[i];
        member.queue = 0;
        item.getBody().front().push_back(
            createInstruction(loc, member, {}, ranksOf(member)));
      }
    };
    if (isTransfer(inst.op))
      writeItem(createContainer<GroupOp>(builder, loc));
    else
      writeItem(createContainer<OverlapOp>(builder, loc));
  }
  return success();
}

LogicalResult writeProgram(ScheduleOp schedule, const Program &program) {
  const Problem &problem = program.problem;
  MLIRContext *context = schedule.getContext();
  Location loc = schedule.getLoc();
  ScheduleOp::Properties &props = schedule.getProperties();
  // The stages now say in full what model, cluster and uniform costs said.
  props.model = nullptr;
  props.cluster = nullptr;
  props.costs = nullptr;
  props.bytes = nullptr;
  props.ranks = problem.numRanks;
  props.microbatches = problem.numWholeMicrobatches();
  props.slices = problem.slices == 1 ? -1 : problem.slices;
  props.memory = problem.memory ? problem.memory : -1;
  auto linkAttr = [&](const Link &link) {
    return link == Link() ? LinkAttr() : LinkAttr::get(context, link);
  };
  props.link = linkAttr(problem.link);
  props.host_link = linkAttr(problem.hostLink);
  props.chains.assign(problem.chains.begin(), problem.chains.end());
  props.weights = problem.weights.empty()
                      ? DenseF64ArrayAttr()
                      : DenseF64ArrayAttr::get(context, problem.weights);
  props.tied_stages.clear();
  props.tied_sizes.clear();
  for (const TiedStages &set : problem.tied) {
    props.tied_stages.append(set.stages.begin(), set.stages.end());
    props.tied_sizes.append({int64_t(set.stages.size()), set.bytes});
  }
  props.overlap =
      problem.overlap == 0
          ? FloatAttr()
          : FloatAttr::get(Float64Type::get(context), problem.overlap);
  props.post_validation =
      problem.postValidation ? UnitAttr::get(context) : UnitAttr();

  Block &body = schedule.getBody().front();
  body.clear();
  OpBuilder builder = OpBuilder::atBlockEnd(&body);
  writeStages(builder, loc, problem);
  auto isWritten = [](const RankProgram &rank) {
    return !rank.instructions.empty() || !rank.slotBytes.empty() ||
           !rank.hostSlotBytes.empty();
  };
  if (llvm::none_of(program.ranks, isWritten))
    return success();
  for (int32_t rank = 0; rank < problem.numRanks; ++rank) {
    auto op = createContainer<RankOp>(builder, loc);
    op.setRank(rank);
    if (failed(writeRank(op, program, rank)))
      return failure();
  }
  return success();
}

FailureOr<ScheduleOp> createSchedule(OpBuilder &builder, Location loc,
                                     const Program &program) {
  const std::string &name = program.problem.name;
  auto schedule =
      ScheduleOp::create(builder, loc, name.empty() ? "unnamed" : name);
  if (succeeded(writeProgram(schedule, program)))
    return schedule;
  schedule.erase();
  return failure();
}

} // namespace penstock::pipe
