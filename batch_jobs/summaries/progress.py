"""How fast a summarisation job goes and when it will be done. Pure.

Says "not known" where nothing can be known: before anything ended, and while a job does not run.
Called whenever a job is shown, and by tending for the warning of a deadline.
"""
