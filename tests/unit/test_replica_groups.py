"""Which processes of a compiled program exchange something."""

from mcjax_launch.hook import spmd_program

# What a compiled program says: whether its processes exchange anything, two devices each.
EXCHANGED = {
    " all-reduce(%a), channel_id=1, replica_groups={}, to_apply=%r": True,
    " all-reduce(%a), replica_groups={{0,1},{2,3},{4,5},{6,7}}, x": False,
    " all-gather-start(%a), replica_groups=[4,2]<=[8], dimensions={0}": False,
    " ragged-all-to-all(%a), replica_groups=[2,4]<=[8]": True,
    " all-reduce(%a), replica_groups=mesh['a'=4,'b'=2] {'b'}, x": False,
    " all-reduce(%a), replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}, x": False,
    " all-reduce(%a), replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}, x": True,
    " all-reduce(%a), replica_groups=something else, x": True,
    " collective-permute(%a), source_target_pairs={{0,1},{1,0}}": False,
    " collective-permute(%a), source_target_pairs={{0,1},{1,2}}": True,
    " collective-permute(%a), from=nowhere": True,
    " collective-broadcast(%a), replica_groups={{0,7}}": True,
    " conditional(%p)\n all-reduce(%a), replica_groups={}, x\n\nENTRY %main": True,
    " send(%a, %token), channel_id=1, is_host_transfer=true": False,
    " send(%a, %token), channel_id=1": True,
    ' custom-call(%a), custom_call_target="lapack_sgetrf_ffi"': False,
    " sine(%all-reduce.1)": False,
}


def test_ranks_that_exchange_data_follow_from_replica_groups() -> None:
    processes = [0, 0, 1, 1, 2, 2, 3, 3]
    found = {text: spmd_program.exchanges(text, processes) for text in EXCHANGED}
    assert found == EXCHANGED
